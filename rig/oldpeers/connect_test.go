package oldpeers

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// HTTP CONNECT clients and old agents. COMPAT 2, as changed by 9.2 and 11. How a
// client leaves depends on the medium: connect_uds_test.go is on real sockets.

func TestConnectOK(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.call(kubeAPIServer(endpointAddress))
		random := c.asked(endpointAddress)
		synctest.Wait()
		if n := c.unread(); n != 0 {
			t.Errorf("%d bytes came before the agent's answer", n)
		}
		s.agent.Send(dialRsp(random, 2))
		c.id = 2
		c.once(established)
		c.works()
		if n := s.number("konnectivity_network_proxy_server_http_connections"); n != 2 {
			t.Errorf("%d connections are counted", n)
		}
	})
}

// Where the request says the endpoint is: in the target, else in the Host header.
func TestConnectTargets(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		for head, want := range map[string]string{
			"CONNECT node:80 HTTP/1.1\r\nHost: other:1\r\n\r\n":       "node:80",
			"CONNECT node HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":        "node", // the agent says what is wrong with it
			"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n":       "[fd00::1]:443",
			"CONNECT svc.ns.svc:443 HTTP/1.0\r\n\r\n":                 "svc.ns.svc:443",
			"CONNECT /path HTTP/1.1\r\nHost: node:81\r\n\r\n":         "node:81",
			"CONNECT :80 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y\r\n\r\n": ":80",
		} {
			c := s.call(head)
			s.agent.Send(dialErr(c.asked(want), "dial tcp: address x: missing port in address"))
			if a := c.fails(); a.status != 502 {
				t.Errorf("%q: %+v", head, a)
			}
		}
	})
}

// What follows the head is the first data, sent when the dial has succeeded.
func TestConnectEarlyBytes(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.call(kubeAPIServer(endpointAddress) + "early")
		random := c.asked(endpointAddress)
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(dialRsp(random, 2))
		expect(t, s.agent.Peer, data(2, "early"))
		c.id = 2
		c.once(established)
		c.works()
	})
}

func TestConnectOtherMethods(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.call("")
		for range 2 { // the connection is kept alive
			c.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			buf := make([]byte, 4096)
			n, err := c.Read(buf)
			head, body, _ := strings.Cut(string(buf[:n]), "\r\n\r\n")
			if err != nil || !strings.HasPrefix(head, "HTTP/1.1 405 ") || len(body) != 45 || !strings.Contains(head, "X-Content-Type-Options: nosniff") {
				t.Errorf("answered %q, %v", buf[:n], err)
			}
		}
		c.write(kubeAPIServer(endpointAddress))
		c.establish(2)
		c.works()
	})
}

func TestConnectNoAgent(t *testing.T) {
	cfg := config()
	cfg.Mode = server.ModeHTTPConnect
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		want := answer{503, "No agent available", "currently no tunnels available: No agent available"} // 11
		if a := s.call(kubeAPIServer(endpointAddress)).fails(); a != want {
			t.Errorf("answered %+v", a)
		}
		if n := s.dialFailures("no_agent"); n != 1 {
			t.Errorf("%d failures were counted", n)
		}
	})
}

// The agent's text decides about the status.
func TestConnectDialFails(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		for text, status := range map[string]int{
			"dial tcp 10.1.2.3:80: i/o timeout":                              504,
			"context deadline exceeded":                                      504,
			"dial tcp 10.1.2.3:80: connect: connection timed out: timeout":   504,
			"dial tcp 127.0.0.1:1: connect: connection refused":              502,
			"read: connection reset by peer":                                 502,
			"dial tcp: lookup nowhere on 10.0.0.10:53: no such host":         502,
			"remote error: tls: bad certificate":                             502,
			"anything else":                                                  502,
			"dial tcp: address x: missing port in address":                   502,
			"dial tcp 10.1.2.3:80: connect: network is unreachable":          502,
			"dial tcp 10.1.2.3:80: socket: too many open files":              503,
			"dial tcp: lookup timeout.example on 10.0.0.10:53: no such host": 502, // the name is the client's
			"dial tcp: lookup foo on 10.0.0.10:53: Timeout":                  504,
			"dial tcp 10.1.2.3:80: connect: no route to host":                502,
			"dial tcp 10.1.2.3:80: connect: something\r\nX-Injected: header": 502,
		} {
			c := s.call(kubeAPIServer(endpointAddress))
			s.agent.Send(dialErr(c.asked(endpointAddress), text))
			a := c.fails()
			if a.status != status || a.body != text || strings.ContainsAny(a.phrase, "\r\n") || a.phrase == "" {
				t.Errorf("%q is answered with %+v, want %d", text, a, status)
			}
		}
	})
}

func TestConnectBackendDialTimeout(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.call(kubeAPIServer(endpointAddress))
		random := c.asked(endpointAddress)
		start := time.Now()
		if a := c.fails(); a.status != 504 || a.body != "Backend dial timeout: timed out waiting for backend dial\r\n" {
			t.Errorf("answered %+v", a)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("answered after %v", d)
		}
		expect(t, s.agent.Peer, dialCls(random))
		s.agent.Send(dialRsp(random, 2))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))
	})
}

// The agent gives the dial up: the reference closes without a byte.
func TestConnectAgentGivesTheDialUp(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.call(kubeAPIServer(endpointAddress))
		s.agent.Send(dialCls(c.asked(endpointAddress)))
		if a := c.fails(); a.status != 502 || a.body == "" {
			t.Errorf("answered %+v", a)
		}
	})
}

func TestConnectAgentLost(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		up := s.established(2)
		up.works()
		s.agent.Send(data(2, "last words"))
		dialing := s.call(kubeAPIServer(endpointAddress))
		dialing.asked(endpointAddress)
		s.agent.Close()
		s.agent = nil
		up.reads("last words")
		up.readsEOF()
		if a := dialing.fails(); a.status != 502 || !strings.HasPrefix(a.body, "Backend context error: ") || !strings.HasSuffix(a.body, "\r\n") {
			t.Errorf("answered %+v", a)
		}
	})
}

// The answer, data and the end in one burst: the reference brings the data before
// the 200 line nearly always (9.2).
func TestConnectAnswerDataAndEndAtOnce(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		for range 20 {
			c := s.call(kubeAPIServer(endpointAddress))
			random := c.asked(endpointAddress)
			s.agent.Send(dialRsp(random, 2), data(2, "banner"), closeRsp(2, ""))
			c.reads(established + "banner")
			c.readsEOF()
			c.Close()
			synctest.Wait()
			s.agent.ExpectNothing() // the reference closes once more what is closed
		}
	})
}

// The endpoint closes: what it sent comes first, then the end; and nothing goes to
// the agent any more.
func TestConnectCloseByEndpoint(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.established(2)
		c.works()
		s.agent.Send(data(2, "rest"), closeRsp(2, ""))
		c.reads("rest")
		c.readsEOF()
		c.Close()
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// The client half-closes. The reference closes at once and loses the endpoint's
// answer; ours cannot tell an old agent, so the tunnel goes on until the endpoint is
// done, or the client leaves, or five minutes pass in silence.
func TestConnectHalfClose(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.established(2)
		c.write("request")
		expect(t, s.agent.Peer, data(2, "request"))
		c.closeWrite()
		s.later(time.Minute)
		s.agent.ExpectNothing()
		s.agent.Send(data(2, "late answer"), closeRsp(2, ""))
		c.reads("late answer")
		c.readsEOF()

		c = s.established(3)
		c.closeWrite()
		start := time.Now()
		s.later(6 * time.Minute)
		expect(t, s.agent.Peer, closeReq(3))
		s.agent.Send(closeRsp(3, ""))
		if n := s.number("culvert_server_tunnels_closed_total", "reason", "half_close_timeout"); n != 1 {
			t.Errorf("%d tunnels were given up after %v", n, time.Since(start))
		}
	})
}

// Old agents that break the rules, with CONNECT clients beside.
func TestConnectPacketsInTheWrongOrder(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		dialing := s.call(kubeAPIServer(endpointAddress))
		random := dialing.asked(endpointAddress)
		s.agent.Send(dialReq(random), closeReq(1), closeRsp(99, "x"), dialErr(5, "x"), data(0, "x"), data(1, ""))
		for name, message := range mismatched() {
			if !strings.HasPrefix(name, "DRAIN") {
				s.agent.SendRaw(message)
			}
		}
		for _, k := range unknown(1) {
			s.agent.Send(k)
		}
		synctest.Wait()
		s.agent.ExpectNothing()
		if n := dialing.unread(); n != 0 {
			t.Errorf("the client was sent %d bytes", n)
		}
		s.agent.Send(data(99, "x"))
		expect(t, s.agent.Peer, closeReq(99))
		s.agent.Send(closeRsp(99, ""))
		s.agent.Send(dialRsp(random, 2))
		dialing.id = 2
		dialing.once(established)
		dialing.works()
		s.agent.Send(wire.Packet{Type: wire.DialResponse, DialID: random, ConnectionID: 7}) // a second answer
		expect(t, s.agent.Peer, closeReq(7))
		s.agent.Send(closeRsp(7, ""))
	})
}

// The server stops: sockets close with the process, within its five seconds.
func TestConnectServerStops(t *testing.T) {
	withConnect(t, func(t *testing.T, s *stage) {
		c := s.established(2)
		c.works()
		dialing := s.call(kubeAPIServer(endpointAddress))
		dialing.asked(endpointAddress)
		start := time.Now()
		s.stop()
		c.readsEOF()
		if a := dialing.fails(); a.status != 503 {
			t.Errorf("answered %+v", a)
		}
		<-s.ended
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		s.agent = nil
	})
}
