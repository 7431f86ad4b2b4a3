package lifecycle

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ErrSignal is the cause of a context that a signal ended.
var ErrSignal = errors.New("signal received")

// Signals returns a context that the first SIGTERM or SIGINT ends, with
// ErrSignal as its cause; the second calls again, which for a binary means to
// exit at once. stop gives the signals back and waits for nothing. COMPAT 6.6, 7.8.
func Signals(parent context.Context, again func()) (ctx context.Context, stop context.CancelFunc) {
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	ctx, cancel := watch(parent, received, again)
	return ctx, func() {
		signal.Stop(received)
		cancel()
	}
}

// watch is Signals without the operating system.
func watch(parent context.Context, received <-chan os.Signal, again func()) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stopped := make(chan struct{})
	go func() {
		for count := 1; ; count++ {
			select {
			case <-received:
				if count == 2 {
					again()
				}
				cancel(ErrSignal)
			case <-stopped:
				return
			}
		}
	}()
	return ctx, sync.OnceFunc(func() {
		close(stopped)
		cancel(context.Canceled)
	})
}
