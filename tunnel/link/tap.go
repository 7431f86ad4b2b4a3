package link

import (
	"context"
	"time"

	"google.golang.org/grpc/tap"
)

// Tap makes a server's streams outlive their loss for a moment, and lets their
// handlers end them.
//
// gRPC cancels a stream's context as soon as its connection is gone or the peer
// resets it, and RecvMsg then returns an error though packets are waiting that
// arrived before. The context that a tap returns is the one RecvMsg and SendMsg
// wait on; this one ends only grace after gRPC's own, so that a reader that does
// not wait reads all there is. Cancel ends it at once.
//
// gRPC takes only one tap; inner, if not nil, is another one. It runs first.
func Tap(grace time.Duration, inner tap.ServerInHandle) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if inner != nil {
			var err error
			if ctx, err = inner(ctx, info); err != nil {
				return ctx, err
			}
		}
		longer, end := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, end) })
		t := &tapped{stream: ctx, cancel: func() { stop(); end() }}
		return context.WithValue(longer, tappedKey{}, t), nil
	}
}

// tapped is what Tap leaves in a stream's context.
type tapped struct {
	stream context.Context // gRPC's own
	cancel context.CancelFunc
}

type tappedKey struct{}

// Tapped returns what Tap knows of a stream, given its context: gRPC's own
// context, which ends when the stream is lost, and a function that frees RecvMsg
// and SendMsg at once, which the handler calls at its end at the latest. false
// means that the server has no Tap.
func Tapped(ctx context.Context) (stream context.Context, cancel context.CancelFunc, ok bool) {
	t, ok := ctx.Value(tappedKey{}).(*tapped)
	if !ok {
		return ctx, func() {}, false
	}
	return t.stream, t.cancel, true
}
