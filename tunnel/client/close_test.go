package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// answerClose plays the server's part of a close.
func (s *stage) answerClose(peer *tunneltest.ServerPeer) {
	s.Helper()
	peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
	if s.ext != 0 {
		peer.End(nil)
	}
}

func TestCloseReturnsAtOnceAndDeliversEverything(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.SetWriteDeadline(time.Now().Add(time.Second))
		r := <-s.stuckWrite(c, peer, 2<<20)
		began := time.Now()
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			s.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			s.Errorf("Close took %v", took)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			s.Errorf("got %v", err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			s.Errorf("got %v", err)
		}
		if err := c.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			s.Errorf("got %v", err)
		}
		<-time.After(9 * time.Second)
		peer.SetReading(true)
		peer.ExpectData(connID, pattern(2 << 20)[:r.n])
		peer.ExpectOn(wire.CloseRequest, connID)
		peer.Send(data("what comes now is dropped"))
		<-time.After(9 * time.Second) // counted from the last progress
		s.answerClose(peer)
		if err := c.CloseContext(s.Context()); err != nil {
			s.Error(err)
		}
		if s.single {
			<-s.tunnels[0].Done()
		}
		s.ended(peer)
	})
}

func TestCloseOnASlowServerGoesOnWithProgress(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		s.network.Shape("client", "server", tunneltest.Shape{Rate: 8 << 10})
		want := pattern(128 << 10)
		if _, err := c.Write(want); err != nil {
			s.Fatal(err)
		}
		c.Close()
		got := 0
		for got < len(want) {
			k := peer.ExpectOn(wire.Data, connID)
			got += k.Payload.Len()
		}
		peer.ExpectOn(wire.CloseRequest, connID)
		s.answerClose(peer)
		if err := c.CloseContext(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestCloseWithoutProgressIsGivenUp(t *testing.T) {
	variants(t, func(s *stage) {
		s.opts.CloseTimeout = 7 * time.Second
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		<-time.After(time.Second)
		began := time.Now()
		c.Close()
		<-done
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonCloseTimeout)
		if took := time.Since(began); took != 7*time.Second {
			s.Errorf("given up after %v", took)
		}
	})
}

func TestCloseWithoutAnAnswerIsGivenUp(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		began := time.Now()
		c.Close()
		peer.ExpectOn(wire.CloseRequest, connID)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := c.CloseContext(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			s.Errorf("%v after %v", err, time.Since(began))
		}
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonCloseTimeout)
		if took := time.Since(began); took != DefaultCloseTimeout {
			s.Errorf("given up after %v", took)
		}
		s.ended(peer)
	})
}

func TestCloseAfterAStuckWriteIsAnAbort(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		<-time.After(stuckAfter)
		began := time.Now()
		c.Close()
		<-done
		<-c.Done()
		if took := time.Since(began); took != 0 {
			s.Errorf("took %v", took)
		}
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonCloseTimeout)
	})
}

func TestCloseAnsweredWithAnError(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.Close()
		peer.ExpectOn(wire.CloseRequest, connID)
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID, Error: "CLOSE_REQ to backend failed", Reason: wire.ReasonLinkLost})
		want := wire.ReasonOther
		if s.ext != 0 {
			want = wire.ReasonLinkLost
		}
		s.abnormal(c.CloseContext(s.Context()), want)
	})
}

func TestStreamLostWhileClosing(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.Close()
		peer.ExpectOn(wire.CloseRequest, connID)
		peer.End(nil)
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonLinkLost)
	})
}

// An old server leaves the stream open behind CLOSE_RSP.
func TestServerThatLeavesTheStreamOpen(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.Close()
		peer.ExpectOn(wire.CloseRequest, connID)
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		began := time.Now()
		if err := c.CloseContext(s.Context()); err != nil {
			s.Error(err)
		}
		if took := time.Since(began); took > endGrace {
			s.Errorf("took %v", took)
		}
		s.ended(peer)
	})
}

func TestAbort(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		done := s.stuckWrite(c, peer, 2<<20)
		if err := errors.Join(c.Abort(), c.Abort(), c.Close()); err != nil {
			s.Error(err)
		}
		if r := <-done; !errors.Is(r.err, net.ErrClosed) {
			s.Errorf("got %v", r.err)
		}
		<-c.Done()
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonAborted)
		peer.SetReading(true)
		synctest.Wait()
		for _, k := range peer.Skip() {
			if k.Type != wire.Data {
				s.Errorf("got %v", k.Type)
			}
		}
		if err := peer.ExpectEnd(); err == nil {
			s.Error("the server saw an orderly end")
		}
	})
}

func TestAbortWhileClosing(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		c.Close()
		peer.ExpectOn(wire.CloseRequest, connID)
		c.Abort()
		<-c.Done()
		s.abnormal(c.CloseContext(s.Context()), wire.ReasonAborted)
	})
}

func TestTunnelCloseAbortsWhatIsOpen(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		began := time.Now()
		tunnel := s.tunnels[0]
		var closers [3]chan struct{}
		for i := range closers {
			closers[i] = make(chan struct{})
			go func() {
				defer close(closers[i])
				tunnel.Close()
				select {
				case <-tunnel.Done():
				default:
					s.Error("Close returned before the tunnel had ended")
				}
			}()
		}
		for _, done := range closers {
			<-done
		}
		if took := time.Since(began); took != 0 {
			s.Errorf("took %v", took)
		}
		_, err := c.Read(make([]byte, 1))
		s.abnormal(err, wire.ReasonAborted)
		s.ended(peer)
		_, err = tunnel.DialContext(s.Context(), "tcp", endpoint)
		want := wire.ReasonTunnelClosed
		if s.single {
			want = wire.ReasonAlreadyDialed
		}
		s.failure(result{err: err}, want)
	})
}

func TestTunnelCloseLetsClosesFinish(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		if _, err := c.Write([]byte("last words")); err != nil {
			s.Fatal(err)
		}
		c.Close()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.tunnels[0].Close()
		}()
		<-time.After(3 * time.Second)
		peer.ExpectData(connID, []byte("last words"))
		peer.ExpectOn(wire.CloseRequest, connID)
		s.answerClose(peer)
		<-closed
		if err := c.CloseContext(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestTunnelCloseEndsDials(t *testing.T) {
	variants(t, func(s *stage) {
		tunnel, peer, _, done := s.dialled(s.Context())
		tunnel.Close()
		s.failure(<-done, wire.ReasonTunnelClosed)
		s.ended(peer)
	})
}

func TestTunnelCloseEndsDialsThatConnect(t *testing.T) {
	bubble(t, false, 0, func(s *stage) {
		s.stall(true)
		tunnel := s.tunnel()
		done := s.dial(s.Context(), tunnel)
		synctest.Wait()
		began := time.Now()
		tunnel.Close()
		s.failure(<-done, wire.ReasonTunnelClosed)
		if took := time.Since(began); took != 0 {
			s.Errorf("took %v", took)
		}
	})
}

func TestReusableOutlivesItsConnection(t *testing.T) {
	newServer(t, func(s *stage) {
		tunnel := s.tunnel()
		for range 3 {
			done := s.dial(s.Context(), tunnel)
			peer := s.server.AcceptClient(s.ext)
			peer.Send(wire.Packet{Type: wire.DialResponse, DialID: peer.ExpectDial(endpoint).DialID, ConnectionID: connID})
			c := (<-done).conn
			s.network.Cut("client", "server")
			_, err := c.Read(make([]byte, 1))
			s.abnormal(err, wire.ReasonLinkLost)
		}
	})
}
