package client

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// data is a DATA packet.
func data(text string) wire.Packet {
	return wire.Packet{Type: wire.Data, ConnectionID: connID, Payload: wire.PayloadBytes([]byte(text))}
}

func TestReadInPieces(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		peer.Send(data("hello"), data(""), data(" "), data("world"))
		buf := make([]byte, 3)
		var got string
		for range 4 {
			n, err := io.ReadFull(c, buf)
			got += string(buf[:n])
			if err != nil {
				s.Fatal(err)
			}
			if len(got) == 9 {
				break
			}
		}
		n, err := c.Read(nil)
		if n != 0 || err != nil {
			s.Errorf("an empty Read: %d, %v", n, err)
		}
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		s.orderly(s.readAll(c, "ld"))
		s.orderly(s.readAll(c, ""))
		if got != "hello wor" {
			s.Errorf("read %q", got)
		}
	})
}

func TestOrderlyEndComesBehindTheData(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		text := strings.Repeat("x", 100<<10)
		peer.SendData(connID, []byte(text))
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		if s.ext != 0 {
			peer.End(nil)
		}
		s.ended(peer)
		synctest.Wait()
		s.orderly(s.readAll(c, text))
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			s.Errorf("write behind the end: %v", err)
		}
		if err := c.CloseContext(s.Context()); err != nil {
			s.Errorf("close behind the end: %v", err)
		}
	})
}

// A slow reader is held back by flow control, however long it takes.
func TestReaderPausesInTheMiddle(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		text := strings.Repeat("0123456789abcdef", 4<<20/16)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			peer.SendData(connID, []byte(text))
			peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
			peer.End(nil)
		}()
		if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
			s.Fatal(err)
		}
		for range 10 {
			<-time.After(time.Hour)
			select {
			case <-sent:
				s.Fatal("the server could send everything while nobody read")
			default:
			}
			c.mu.Lock()
			if n := c.received.bytes; n > maxReceived+(64<<10) {
				s.Errorf("%d bytes are queued", n)
			}
			c.mu.Unlock()
		}
		s.orderly(s.readAll(c, text[100<<10:]))
		<-sent
	})
}

func TestStuckReaderHarmsNoNeighbour(t *testing.T) {
	newServer(t, func(s *stage) {
		tunnel := s.tunnel()
		open := func() (*Conn, *tunneltest.ServerPeer) {
			done := s.dial(s.Context(), tunnel)
			peer := s.server.AcceptClient(s.ext)
			peer.Send(wire.Packet{Type: wire.DialResponse, DialID: peer.ExpectDial(endpoint).DialID, ConnectionID: connID})
			return (<-done).conn, peer
		}
		text := strings.Repeat("x", 2<<20)
		var stuck []*Conn
		var sending sync.WaitGroup
		for range 8 {
			c, peer := open()
			stuck = append(stuck, c)
			sending.Go(func() { peer.SendData(connID, []byte(text)) })
		}
		synctest.Wait()
		c, peer := open()
		for range 100 {
			peer.Send(data("ping"))
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				s.Fatal(err)
			}
		}
		for _, c := range stuck {
			if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
				s.Fatal(err)
			}
		}
		sending.Wait()
	})
}

func TestAbnormalEnds(t *testing.T) {
	tests := []struct {
		name     string
		end      func(s *stage, peer *tunneltest.ServerPeer)
		new, old wire.Reason
	}{
		{"reset", func(_ *stage, p *tunneltest.ServerPeer) {
			p.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID, Reason: wire.ReasonReset, Error: "reset by peer"})
		}, wire.ReasonReset, wire.ReasonOther},
		{"reason without a text", func(s *stage, p *tunneltest.ServerPeer) {
			k := wire.Packet{Type: wire.CloseResponse, ConnectionID: connID, Reason: wire.ReasonStuck}
			if s.ext == 0 {
				k.Reason, k.Error = 0, "stuck"
			}
			p.Send(k)
		}, wire.ReasonStuck, wire.ReasonOther},
		{"stream fails", func(_ *stage, p *tunneltest.ServerPeer) { p.End(status.Error(codes.Internal, "x")) }, wire.ReasonLinkLost, wire.ReasonLinkLost},
		{"stream ends without a word", func(_ *stage, p *tunneltest.ServerPeer) { p.End(nil) }, wire.ReasonLinkLost, wire.ReasonLinkLost},
		{"server dies", func(s *stage, _ *tunneltest.ServerPeer) {
			synctest.Wait()
			s.network.Cut("client", "server")
		}, wire.ReasonLinkLost, wire.ReasonLinkLost},
		{"DIAL_CLS", func(_ *stage, p *tunneltest.ServerPeer) { p.Send(wire.Packet{Type: wire.DialClose, DialID: 1}) }, wire.ReasonProtocolError, wire.ReasonProtocolError},
		{"second DIAL_RSP", func(_ *stage, p *tunneltest.ServerPeer) {
			p.Send(wire.Packet{Type: wire.DialResponse, DialID: 1, ConnectionID: 8})
		}, wire.ReasonProtocolError, wire.ReasonProtocolError},
		{"mismatched", func(_ *stage, p *tunneltest.ServerPeer) { p.SendRaw([]byte{0x08, 0x04}) }, wire.ReasonProtocolError, wire.ReasonProtocolError},
		{"no packet at all", func(_ *stage, p *tunneltest.ServerPeer) { p.SendRaw([]byte{0xff}) }, wire.ReasonLinkLost, wire.ReasonLinkLost},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			variants(t, func(s *stage) {
				c, peer := s.connected()
				peer.Send(data("before "), data("the end"))
				test.end(s, peer)
				synctest.Wait()
				want := test.old
				if s.ext != 0 {
					want = test.new
				}
				err := s.readAll(c, "before the end")
				s.abnormal(err, want)
				if want == wire.ReasonReset && !errors.Is(err, syscall.ECONNRESET) {
					s.Errorf("got %v", err)
				}
				_, err = c.Write([]byte("x"))
				s.abnormal(err, want)
				s.abnormal(c.CloseContext(s.Context()), want)
				s.abnormal(c.CloseContext(s.Context()), want)
			})
		})
	}
}

func TestIgnoredPackets(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		for _, typ := range []wire.PacketType{wire.DialRequest, wire.CloseRequest, wire.Drain, wire.Credit, wire.Ready, wire.ServerCount, 99} {
			peer.Send(wire.Packet{Type: typ, ConnectionID: connID})
		}
		foreign := data("not ours")
		foreign.ConnectionID = connID + 1
		zero := data("no one's")
		zero.ConnectionID = 0
		peer.Send(foreign, zero, data("ours"),
			wire.Packet{Type: wire.CloseResponse, ConnectionID: connID + 1},
			wire.Packet{Type: wire.CloseResponse},
			wire.Packet{Type: wire.HalfClose, ConnectionID: connID + 1})
		synctest.Wait()
		peer.ExpectNothing()
		buf := make([]byte, 100)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "ours" {
			s.Errorf("read %q, %v", buf[:n], err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			s.Error(err)
		}
		peer.ExpectData(connID, []byte("x"))
	})
}

func TestPeerHalfCloses(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		peer.Send(data("all"), wire.Packet{Type: wire.HalfClose, ConnectionID: connID}, wire.Packet{Type: wire.HalfClose, ConnectionID: connID})
		if s.ext == 0 { // not negotiated: a packet that nobody knows
			synctest.Wait()
			c.SetReadDeadline(time.Now().Add(time.Second))
			if err := s.readAll(c, "all"); !errors.Is(err, os.ErrDeadlineExceeded) {
				s.Errorf("got %v", err)
			}
			return
		}
		s.orderly(s.readAll(c, "all"))
		if _, err := c.Write([]byte("still")); err != nil {
			s.Fatal(err)
		}
		peer.ExpectData(connID, []byte("still"))
		if err := c.CloseWrite(); err != nil {
			s.Fatal(err)
		}
		peer.ExpectOn(wire.HalfClose, connID)
		peer.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
		peer.End(nil)
		<-c.Done()
		if err := c.CloseContext(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestDataAfterHalfClose(t *testing.T) {
	newServer(t, func(s *stage) {
		c, peer := s.connected()
		peer.Send(data("all"), wire.Packet{Type: wire.HalfClose, ConnectionID: connID}, data("more"))
		s.ended(peer)
		s.orderly(s.readAll(c, "all"))
		_, err := c.Write([]byte("x"))
		s.abnormal(err, wire.ReasonProtocolError)
	})
}

func TestReadDeadline(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		buf := make([]byte, 10)
		for range 3 {
			began := time.Now()
			c.SetReadDeadline(began.Add(2 * time.Second))
			_, err := c.Read(buf)
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				s.Fatalf("got %v", err)
			}
			if took := time.Since(began); took != 2*time.Second {
				s.Errorf("after %v", took)
			}
		}
		c.SetReadDeadline(time.Time{})
		peer.Send(data("alive"))
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "alive" {
			s.Errorf("%q, %v", buf[:n], err)
		}
		// A deadline that is moved while a Read waits counts at once.
		c.SetReadDeadline(time.Now().Add(time.Hour))
		failed := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := c.Read(buf)
			failed <- err
		}()
		synctest.Wait()
		c.SetReadDeadline(time.Now().Add(time.Second))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			s.Errorf("got %v after %v", err, time.Since(began))
		}
		peer.Send(data("late"))
		synctest.Wait()
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			s.Errorf("a deadline in the past does not count when there is data: %v", err)
		}
	})
}

// Packets without the payload that their type asks for, of every type that a
// server may send.
func TestMismatchedPackets(t *testing.T) {
	for _, typ := range []byte{1, 3, 4, 5, 65} {
		newServer(t, func(s *stage) {
			c, peer := s.connected()
			peer.SendRaw([]byte{0x08, typ})
			s.ended(peer)
			s.abnormal(s.readAll(c, ""), wire.ReasonProtocolError)
		})
	}
}

func TestDialClosedWhenItIsLongOpen(t *testing.T) {
	variants(t, func(s *stage) {
		c, peer := s.connected()
		peer.Send(data("x"), wire.Packet{Type: wire.DialClose, DialID: c.dialID})
		err := s.readAll(c, "x")
		s.abnormal(err, wire.ReasonOther)
		if !errors.Is(err, ErrDialClosed) || !strings.Contains(err.Error(), "abnormally") {
			s.Errorf("got %v", err)
		}
		s.ended(peer)
	})
}
