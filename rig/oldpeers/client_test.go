package oldpeers

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/culvert-proxy/culvert/tunnel/client"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Our client library in front of an old server. COMPAT 1.6, 1.7, 8.2. What the public
// library does instead is in interop/.

// dialing is a dial of ours that an old server has been asked for.
type dialing struct {
	t      *testing.T
	tunnel *client.SingleUse
	server *tunneltest.ServerPeer
	random wire.DialID
	conn   *client.Conn // nil until it has succeeded
	err    error
	over   chan struct{} // closed when DialContext has returned
}

// withClient plays f with a dial that an old server sees, for a client with and one
// without extensions.
func withClient(t *testing.T, f func(t *testing.T, d *dialing)) {
	t.Helper()
	for name, disabled := range map[string]bool{"new": false, "without extensions": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, dialled(t, t.Context(), disabled)) })
		})
	}
}

func dialled(t *testing.T, ctx context.Context, disabled bool) *dialing {
	t.Helper()
	network := tunneltest.NewNetwork(0)
	servers := tunneltest.Serve(t, network.Listen(front), oldServerKeepalive()...)
	tun, err := client.NewSingleUse(ctx, "passthrough:///"+front, client.Options{DisableExtensions: disabled},
		grpc.WithContextDialer(network.Dialer("client")), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tun.Close() })
	d := &dialing{t: t, tunnel: tun, over: make(chan struct{})}
	go func() {
		defer close(d.over)
		conn, err := tun.DialContext(ctx, "tcp", endpointAddress)
		if d.err = err; err == nil {
			d.conn = conn.(*client.Conn)
		}
	}()
	d.server = servers.AcceptClient(0) // looks at no header, and answers none
	k := d.server.ExpectDial(endpointAddress)
	if d.random = k.DialID; k.DialID < 0 || line(k) != line(dialReq(k.DialID)) {
		t.Errorf("the client asks %s", line(k))
	}
	return d
}

// up makes it succeed.
func (d *dialing) up() {
	d.t.Helper()
	d.server.Send(dialRsp(d.random, 1))
	<-d.over
	if d.err != nil {
		d.t.Fatal(d.err)
	}
}

// works checks that data passes both ways.
func (d *dialing) works() {
	d.t.Helper()
	if _, err := d.conn.Write([]byte("up")); err != nil {
		d.t.Fatal(err)
	}
	d.server.ExpectData(1, []byte("up"))
	d.server.Send(data(1, "down"))
	got := make([]byte, 4)
	if _, err := io.ReadFull(d.conn, got); err != nil || string(got) != "down" {
		d.t.Fatalf("read %q, %v", got, err)
	}
}

// gone checks that the tunnel has ended by itself: no old server ends a stream.
func (d *dialing) gone() {
	d.t.Helper()
	synctest.Wait()
	select {
	case <-d.tunnel.Done():
	case <-time.After(2 * time.Second):
		d.t.Error("the tunnel is still there")
	}
}

func TestOurClientDataAndClose(t *testing.T) {
	withClient(t, func(t *testing.T, d *dialing) {
		d.up()
		d.works()
		d.conn.Close()
		expect(t, d.server.Peer, closeReq(1))
		d.server.Send(data(1, "flushed"), closeRsp(1, ""))
		d.gone()
	})
}

// The stream stays open and silent behind these answers.
func TestOurClientsDialFails(t *testing.T) {
	for text, reason := range map[string]wire.Reason{
		"No agent available":                                wire.ReasonNoAgent,
		"timed out waiting for backend dial":                wire.ReasonBackendTimeout,
		"dial tcp 127.0.0.1:1: connect: connection refused": wire.ReasonRefused,
		"dial tcp 10.1.2.3:80: i/o timeout":                 wire.ReasonDialTimeout,
		"anything else":                                     wire.ReasonOther,
	} {
		withClient(t, func(t *testing.T, d *dialing) {
			d.server.Send(dialErr(d.random, text))
			<-d.over
			var failure *wire.DialError
			if !errors.As(d.err, &failure) || failure.Reason != reason {
				t.Errorf("%q: %v", text, d.err)
			}
			d.gone()
		})
	}
}

// DIAL_CLS, the end of the stream, and packets for another dial.
func TestOurClientsDialIsEnded(t *testing.T) {
	for name, end := range map[string]func(d *dialing){
		"DIAL_CLS":             func(d *dialing) { d.server.Send(dialCls(d.random)) },
		"EOF":                  func(d *dialing) { d.server.End(nil) },
		"cut":                  func(d *dialing) { d.server.Close() },
		"DIAL_RSP for another": func(d *dialing) { d.server.Send(dialRsp(d.random+1, 1)) },
		"DIAL_CLS for another": func(d *dialing) { d.server.Send(dialCls(d.random + 1)) },
		"mismatched":           func(d *dialing) { d.server.SendRaw([]byte{0x08, 0x01}) },
	} {
		t.Run(name, func(t *testing.T) {
			withClient(t, func(t *testing.T, d *dialing) {
				end(d)
				<-d.over
				var failure *wire.DialError
				if !errors.As(d.err, &failure) {
					t.Errorf("the dial gave %v", d.err)
				}
				d.gone()
			})
		})
	}
}

func TestOurClientGivesTheDialUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := dialled(t, ctx, false)
		cancel()
		<-d.over
		expect(t, d.server.Peer, dialCls(d.random))
		d.server.Send(dialRsp(d.random, 1)) // crosses
		d.gone()
	})
	synctest.Test(t, func(t *testing.T) { // the server forgot it: an agent was lost
		d := dialled(t, t.Context(), false)
		start := time.Now()
		later(29 * time.Second)
		expect(t, d.server.Peer, dialCls(d.random))
		<-d.over
		if took := time.Since(start); took != 30*time.Second || d.err == nil {
			t.Errorf("%v after %v", d.err, took)
		}
	})
}

// Unasked ends: of the endpoint and of the agent alike without a text, and those
// that have one.
func TestOurClientIsClosed(t *testing.T) {
	for _, text := range []string{"", "mismatched connection IDs", "CLOSE_REQ to backend failed"} {
		withClient(t, func(t *testing.T, d *dialing) {
			d.up()
			d.works()
			d.server.Send(data(1, "rest"), closeRsp(1, text))
			all, err := io.ReadAll(d.conn)
			var end *client.EndError
			if string(all) != "rest" || (err == nil) != (text == "") || text != "" && !errors.As(err, &end) {
				t.Errorf("%q: read %q, %v", text, all, err)
			}
			d.gone()
		})
	}
}

// What an old server does not send, and what is not for this connection.
func TestPacketsThatOurClientIgnores(t *testing.T) {
	withClient(t, func(t *testing.T, d *dialing) {
		d.up()
		for _, p := range append([]wire.Packet{
			dialReq(d.random), closeReq(1), closeReq(9), drain(), data(0, "x"), data(9, "x"), closeRsp(9, "x"), closeRsp(0, "x"), data(1, ""),
		}, unknown(1)...) {
			d.server.Send(p)
		}
		d.server.SendRaw(type99())
		synctest.Wait()
		d.server.ExpectNothing()
		d.works()
		// Half-close is not to be had; the connection says so.
		if d.conn.HalfCloses() {
			t.Error("the client believes in half-closes")
		}
	})
}

var _ net.Conn = (*client.Conn)(nil)
