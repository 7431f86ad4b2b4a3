package frontgrpc

import (
	"context"

	"google.golang.org/grpc/tap"
)

// cancelKey finds a stream's cancel function in its context.
type cancelKey struct{}

// Tap makes streams cancellable from their own handlers: gRPC waits on the
// context that a tap returns, in RecvMsg and in SendMsg. inner, if not nil, runs
// first, and its context is the one that is made cancellable.
func Tap(inner tap.ServerInHandle) tap.ServerInHandle {
	return func(ctx context.Context, info *tap.Info) (context.Context, error) {
		if inner != nil {
			var err error
			if ctx, err = inner(ctx, info); err != nil {
				return ctx, err
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		return context.WithValue(ctx, cancelKey{}, cancel), nil
	}
}

// cancelOf is what Tap left in the context.
func cancelOf(ctx context.Context) (context.CancelFunc, bool) {
	cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc)
	return cancel, ok
}
