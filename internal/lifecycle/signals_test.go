package lifecycle

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestFirstSignalEndsTheContextSecondCallsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := make(chan os.Signal, 2)
		again := 0
		ctx, stop := watch(context.Background(), received, func() { again++ })
		defer stop()
		synctest.Wait()
		if ctx.Err() != nil || again != 0 {
			t.Fatalf("before any signal: %v, called %d times", ctx.Err(), again)
		}
		received <- syscall.SIGTERM
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), ErrSignal) || again != 0 {
			t.Fatalf("after the first: cause %v, called %d times", context.Cause(ctx), again)
		}
		received <- os.Interrupt
		received <- os.Interrupt
		synctest.Wait()
		if again != 1 {
			t.Fatalf("after the second and third: called %d times, want once", again)
		}
	})
}

func TestStopEndsTheContextWithoutASignal(t *testing.T) {
	ctx, stop := watch(context.Background(), nil, func() { t.Error("called again without a signal") })
	stop()
	stop() // like any cancel function, more than once
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrSignal) {
		t.Error("the cause is a signal that never came")
	}
}
