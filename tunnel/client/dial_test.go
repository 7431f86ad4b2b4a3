package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestDialAsksForWhatItIsTold(t *testing.T) {
	variants(t, func(s *stage) {
		_, peer, req, done := s.dialled(s.Context())
		if req.Protocol != "tcp" || req.Address != endpoint || req.DialID <= 0 {
			s.Errorf("DIAL_REQ %+v", req)
		}
		if req.CanHalfClose || req.Window != 0 {
			s.Errorf("an old server passes DIAL_REQ on as it is, so it must hold nothing that the server has not agreed to: %+v", req)
		}
		if got := peer.Headers.Get(wire.HeaderExtensions); len(got) != 1 || got[0] != "half-close,reason" {
			s.Errorf("listed %q", got)
		}
		peer.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: connID})
		r := <-done
		if r.err != nil {
			s.Fatal(r.err)
		}
		if got := r.conn.HalfCloses(); got != (s.ext != 0) {
			s.Errorf("can half-close: %v", got)
		}
		if s.seen.now(StatusOK) != 1 {
			s.Errorf("recorded %q", s.seen.list)
		}
	})
}

func TestDisabledExtensionsAreNotListed(t *testing.T) {
	newServer(t, func(s *stage) {
		s.opts.DisableExtensions = true
		c, peer := s.connected()
		if got := peer.Headers.Get(wire.HeaderExtensions); len(got) != 0 {
			s.Errorf("listed %q", got)
		}
		if c.HalfCloses() {
			s.Error("half-close without an extension")
		}
	})
}

// The rows of COMPAT 8.2 that a server's answer brings about, with old and new
// servers.
func TestDialAnswers(t *testing.T) {
	tests := []struct {
		name   string
		answer wire.Packet
		old    wire.Reason // by the text
		new    wire.Reason // by the field, if there is one
	}{
		{"refused", wire.Packet{Type: wire.DialResponse, Error: "dial tcp 127.0.0.1:1: connect: connection refused", Reason: wire.ReasonRefused}, wire.ReasonRefused, wire.ReasonRefused},
		{"no agent", wire.Packet{Type: wire.DialResponse, Error: "No agent available", Reason: wire.ReasonNoAgent}, wire.ReasonNoAgent, wire.ReasonNoAgent},
		{"backend timeout", wire.Packet{Type: wire.DialResponse, Error: "timed out waiting for backend dial", Reason: wire.ReasonBackendTimeout}, wire.ReasonBackendTimeout, wire.ReasonBackendTimeout},
		{"policy", wire.Packet{Type: wire.DialResponse, Error: "not allowed", Reason: wire.ReasonPolicy}, wire.ReasonOther, wire.ReasonPolicy},
		{"a new server passes an old agent's text on", wire.Packet{Type: wire.DialResponse, Error: "lookup x: no such host"}, wire.ReasonUnknownHost, wire.ReasonUnknownHost},
		{"text beside a connection", wire.Packet{Type: wire.DialResponse, ConnectionID: 1, Error: "i/o timeout"}, wire.ReasonDialTimeout, wire.ReasonDialTimeout},
		{"neither text nor connection", wire.Packet{Type: wire.DialResponse}, wire.ReasonProtocolError, wire.ReasonProtocolError},
		{"dial closed", wire.Packet{Type: wire.DialClose}, wire.ReasonBackendLost, wire.ReasonBackendLost},
		{"data first", wire.Packet{Type: wire.Data, ConnectionID: 1}, wire.ReasonProtocolError, wire.ReasonProtocolError},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			variants(t, func(s *stage) {
				tunnel, peer, req, done := s.dialled(s.Context())
				answer := test.answer
				answer.DialID = req.DialID
				peer.Send(answer)
				want := test.old
				if s.ext != 0 {
					want = test.new
				}
				e := s.failure(<-done, want)
				if !s.seen.has("dial failed: " + want.String()) {
					s.Errorf("recorded %q", s.seen.list)
				}
				var text *AnswerError
				if test.answer.Error != "" && (!errors.As(e, &text) || text.Text != test.answer.Error || e.Error() != text.Text) {
					s.Errorf("got %q, want the server's own text", e)
				}
				if test.answer.Type == wire.DialClose && !errors.Is(e, ErrDialClosed) {
					s.Errorf("got %v", e)
				}
				s.after(tunnel, peer)
			})
		})
	}
}

// after checks what a failed dial leaves: the stream ends; a single-use tunnel
// is over, a reusable one goes on.
func (s *stage) after(tunnel Tunnel, peer interface{ ExpectEnd() error }) {
	s.Helper()
	if s.ext != 0 {
		if p, ok := peer.(interface{ End(err error) }); ok {
			p.End(nil) // as our server does behind its last word
		}
	}
	_ = peer.ExpectEnd()
	if s.single {
		<-tunnel.Done()
		_, err := tunnel.DialContext(s.Context(), "tcp", endpoint)
		s.failure(result{err: err}, wire.ReasonAlreadyDialed)
		return
	}
	done := s.dial(s.Context(), tunnel)
	second := s.server.AcceptClient(s.ext)
	req := second.ExpectDial(endpoint)
	second.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: 9})
	if r := <-done; r.err != nil {
		s.Errorf("the next dial: %v", r.err)
	}
}

func TestAnswerForAnotherDial(t *testing.T) {
	for _, typ := range []wire.PacketType{wire.DialResponse, wire.DialClose} {
		variants(t, func(s *stage) {
			tunnel, peer, req, done := s.dialled(s.Context())
			peer.Send(wire.Packet{Type: typ, DialID: req.DialID + 1, ConnectionID: connID})
			s.failure(<-done, wire.ReasonProtocolError)
			s.after(tunnel, peer)
		})
	}
}

func TestStreamEndsBeforeTheAnswer(t *testing.T) {
	for _, how := range []error{nil, status.Error(codes.Unavailable, "gone")} {
		variants(t, func(s *stage) {
			tunnel, peer, _, done := s.dialled(s.Context())
			peer.End(how)
			s.failure(<-done, wire.ReasonTunnelClosed)
			s.after(tunnel, peer)
		})
	}
}

func TestServerDiesDuringTheDial(t *testing.T) {
	variants(t, func(s *stage) {
		_, _, _, done := s.dialled(s.Context())
		s.network.Cut("client", "server")
		s.failure(<-done, wire.ReasonTunnelClosed)
	})
}

func TestCanceledDial(t *testing.T) {
	for _, test := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		{"canceled", context.WithCancel, context.Canceled},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		}, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			variants(t, func(s *stage) {
				ctx, cancel := test.ctx(s.Context())
				defer cancel()
				tunnel, peer, req, done := s.dialled(ctx)
				if test.want == context.Canceled { //nolint:errorlint // the table's own
					synctest.Wait()
					cancel()
				}
				r := <-done
				e := s.failure(r, wire.ReasonCanceled)
				if !errors.Is(e, test.want) {
					s.Errorf("got %v", e)
				}
				if r.took > 5*time.Second {
					s.Errorf("returned after %v", r.took)
				}
				if k := peer.Expect(wire.DialClose); k.DialID != req.DialID {
					s.Errorf("DIAL_CLS for %d, want %d", k.DialID, req.DialID)
				}
				if err := peer.ExpectEnd(); !errors.Is(err, io.EOF) {
					s.Errorf("the server saw %v, want the end of the client's side behind DIAL_CLS", err)
				}
				peer.End(nil)
				s.after(tunnel, peer)
			})
		})
	}
}

func TestCanceledDialOnAFrozenServer(t *testing.T) {
	variants(t, func(s *stage) {
		ctx, cancel := context.WithCancel(s.Context())
		tunnel, _, _, done := s.dialled(ctx)
		s.stall(true)
		cancel()
		s.failure(<-done, wire.ReasonCanceled)
		if s.single {
			began := time.Now()
			<-tunnel.Done()
			if took := time.Since(began); took != endGrace {
				s.Errorf("the rest took %v", took)
			}
		}
	})
}

func TestDialTakesItsTimeOnly(t *testing.T) {
	variants(t, func(s *stage) {
		_, peer, _, done := s.dialled(s.Context())
		r := <-done
		s.failure(r, wire.ReasonClientTimeout)
		if r.took != DefaultDialTimeout {
			s.Errorf("gave up after %v", r.took)
		}
		peer.Expect(wire.DialClose)
	})
}

func TestLateAnswerToAGivenUpDial(t *testing.T) {
	variants(t, func(s *stage) {
		ctx, cancel := context.WithCancel(s.Context())
		tunnel, peer, req, done := s.dialled(ctx)
		cancel()
		s.failure(<-done, wire.ReasonCanceled)
		peer.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: connID},
			wire.Packet{Type: wire.Data, ConnectionID: connID, Payload: wire.PayloadBytes([]byte("late"))})
		peer.Expect(wire.DialClose)
		s.after(tunnel, peer)
	})
}

func TestContextEndsAfterSuccess(t *testing.T) {
	variants(t, func(s *stage) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		_, peer, req, done := s.dialled(ctx)
		peer.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: connID})
		c := (<-done).conn
		cancel()
		<-time.After(time.Hour)
		if _, err := c.Write([]byte("x")); err != nil {
			s.Fatal(err)
		}
		peer.ExpectData(connID, []byte("x"))
	})
}

func TestWrongNetwork(t *testing.T) {
	variants(t, func(s *stage) {
		tunnel := s.tunnel()
		for _, network := range []string{"udp", "unix", ""} {
			_, err := tunnel.DialContext(s.Context(), network, endpoint)
			s.failure(result{err: err}, wire.ReasonProtocol)
			if s.single {
				<-tunnel.Done() // nothing leaks
				return
			}
		}
	})
}

func TestSingleUseIsForOneDial(t *testing.T) {
	bubble(t, true, 0, func(s *stage) {
		tunnel, peer, req, done := s.dialled(s.Context())
		_, err := tunnel.DialContext(s.Context(), "tcp", endpoint)
		s.failure(result{err: err}, wire.ReasonAlreadyDialed)
		peer.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: connID})
		if r := <-done; r.err != nil {
			s.Errorf("the first dial was harmed: %v", r.err)
		}
	})
}

func TestSingleUseTunnelEndsUndialled(t *testing.T) {
	bubble(t, true, 0, func(s *stage) {
		tunnel := s.tunnel()
		s.server.AcceptClient(0).End(nil)
		<-tunnel.Done()
		_, err := tunnel.DialContext(s.Context(), "tcp", endpoint)
		s.failure(result{err: err}, wire.ReasonTunnelClosed)
	})
}

func TestConnecting(t *testing.T) {
	fails := func(s *stage, ctx context.Context) result {
		began := time.Now()
		tunnel, err := s.tryTunnel(ctx)
		if err == nil {
			s.keep(tunnel)
			return <-s.dial(ctx, tunnel)
		}
		return result{err: err, took: time.Since(began)}
	}
	t.Run("refused", func(t *testing.T) {
		variants(t, func(s *stage) {
			s.server.Stop()
			synctest.Wait()
			s.failure(fails(s, s.Context()), wire.ReasonStreamSetup)
		})
	})
	t.Run("canceled", func(t *testing.T) {
		variants(t, func(s *stage) {
			s.stall(true)
			ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
			defer cancel()
			r := fails(s, ctx)
			if e := s.failure(r, wire.ReasonCanceled); !errors.Is(e, context.DeadlineExceeded) || r.took != 3*time.Second {
				s.Errorf("%v after %v", e, r.took)
			}
		})
	})
	t.Run("already canceled", func(t *testing.T) {
		variants(t, func(s *stage) {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			if e := s.failure(fails(s, ctx), wire.ReasonCanceled); !errors.Is(e, context.Canceled) {
				s.Errorf("%v", e)
			}
		})
	})
}
