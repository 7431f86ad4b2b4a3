package link

import (
	"testing"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// TestWaitEnded: it returns when the close has passed the data, and with every
// other end, and not before.
func TestWaitEnded(t *testing.T) {
	ends := map[string]struct {
		writes bool
		credit int64
		act    func(l *Link, s *Sender)
	}{
		"close without data":   {false, 10, func(_ *Link, s *Sender) { s.Finish(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1}) }},
		"abort":                {false, 10, func(_ *Link, s *Sender) { s.Abort(nil) }},
		"link lost":            {false, 10, func(l *Link, _ *Sender) { l.Close(nil) }},
		"link lost, data left": {true, 0, func(l *Link, s *Sender) { _ = s.Write(bytesOf(10)); l.Close(nil) }},
		"credit for the data": {true, 0, func(_ *Link, s *Sender) {
			_ = s.Write(bytesOf(10))
			s.Finish(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1})
			_ = s.AddCredit(10)
		}},
	}
	for name, end := range ends {
		synctest.Test(t, func(t *testing.T) {
			l := startOn(t, newFakeStream(), Config{Extensions: noPing})
			s := l.NewSender(1, end.credit)
			done := make(chan struct{})
			go func() {
				s.WaitEnded()
				s.WaitEnded() // and again, at once
				close(done)
			}()
			synctest.Wait()
			if !end.writes {
				s.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: 1})
				synctest.Wait()
			}
			select {
			case <-done:
				t.Errorf("%s: returned before the end", name)
			default:
			}
			end.act(l, s)
			<-done
		})
	}
}
