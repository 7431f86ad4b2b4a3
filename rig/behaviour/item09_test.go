package behaviour

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/rig/process"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// refusedPort is an address where nobody listens.
func refusedPort(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", process.FreePorts(t, "127.0.0.1", 1)[0])
}

// unknownName exists nowhere, and no name server is asked for it, because it is no
// domain name: a test machine may have none.
const unknownName = "nobody..invalid:80"

// failure is how a dial failed, as its client sees it.
type failure struct {
	reason wire.Reason // gRPC
	status int         // CONNECT
	phrase string      // CONNECT: of the status line
	text   string      // CONNECT: the body; gRPC: the error
}

// fail dials what cannot be reached. CONNECT answers are read whole, to the end
// of the connection.
func (f *front) fail(address string) (failure, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if f.kind.connect() {
		return f.failConnect(ctx, address)
	}
	c, err := f.Dial(ctx, address)
	if err == nil {
		c.Close()
		return failure{}, errors.New("the dial succeeded")
	}
	return failureOf(err), nil
}

// failureOf is the error of a dial; of a CONNECT the body may be missing.
func failureOf(err error) failure {
	var answer *statusError
	var dial *wire.DialError
	f := failure{text: err.Error()}
	switch {
	case errors.As(err, &answer):
		fmt.Sscanf(answer.Line, "HTTP/1.1 %d", &f.status)
	case errors.As(err, &dial):
		f.reason = dial.Reason
	}
	return f
}

func (f *front) failConnect(ctx context.Context, address string) (failure, error) {
	conn, raw, err := f.reach(ctx)
	if err != nil {
		return failure{}, err
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(hang))
	if _, err := io.WriteString(conn, connectRequest(address)); err != nil {
		return failure{}, err
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return failure{}, err
	}
	if answer.StatusCode == http.StatusOK {
		return failure{}, errors.New("CONNECT succeeded")
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return failure{}, fmt.Errorf("the body: %w", err)
	}
	if answer.ContentLength != int64(len(body)) || !answer.Close {
		return failure{}, fmt.Errorf("Content-Length %d for %d bytes, Connection: close is %v", answer.ContentLength, len(body), answer.Close)
	}
	if err := expectEOF(reader); err != nil {
		return failure{}, err
	}
	_, phrase, _ := strings.Cut(answer.Status, " ")
	return failure{status: answer.StatusCode, phrase: phrase, text: string(body)}, nil
}

// check compares a failure with what it must be.
func (f failure) check(k kind, reason wire.Reason, status int, text string) error {
	switch {
	case k.connect() && (f.status != status || !strings.Contains(f.phrase, text) || !strings.Contains(f.text, text)):
		return fmt.Errorf("CONNECT: %d %q with the body %q, want %d and %q in both", f.status, f.phrase, f.text, status, text)
	case !k.connect() && (f.reason != reason || !strings.Contains(f.text, text)):
		return fmt.Errorf("gRPC: %v: %q, want %v and %q", f.reason, f.text, reason, text)
	}
	return nil
}

// An agent is killed while a dial waits for it: the client has its answer.
func TestBehaviour09AgentKilledDuringADial(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{ids: []string{""}})
		hole := blackHole(t)
		type answer struct {
			failure
			err error
			at  time.Time
		}
		answers := make(chan answer)
		const dials = 3
		for range dials {
			go func() {
				f, err := s.fail(hole)
				answers <- answer{f, err, time.Now()}
			}()
		}
		process.Eventually(t, hang, "the dials are pending", func() bool { return s.server.Metric(pendingDials) == dials })
		since := time.Now()
		s.agents[0].Kill()
		for range dials {
			a := <-answers
			if a.err != nil {
				t.Fatal(a.err)
			}
			if err := a.check(k, wire.ReasonBackendLost, http.StatusBadGateway, "agent"); err != nil {
				t.Error(err)
			}
			if took := a.at.Sub(since); took > 500*time.Millisecond+grace {
				t.Errorf("the answer took %v, promised are 500ms", took)
			}
		}
		s.quiet()
	})
}

// Dials that cannot succeed say why, in the words and numbers of each way in.
func TestBehaviour09DialsThatFail(t *testing.T) {
	atOnce(t, func(t *testing.T, k kind) {
		limit := scaled("1s", "5s") // the default is 5 s
		s := newStage(t, k, options{agent: []string{"--dial-timeout=" + limit}})
		for _, c := range []struct {
			name, address string
			reason        wire.Reason
			status        int
			text          string
		}{
			{"refused port", refusedPort(t), wire.ReasonRefused, http.StatusBadGateway, "connection refused"},
			{"black hole", blackHole(t), wire.ReasonDialTimeout, http.StatusGatewayTimeout, "i/o timeout"},
			{"unknown name", unknownName, wire.ReasonUnknownHost, http.StatusBadGateway, "no such host"},
			{"no port", "127.0.0.1", wire.ReasonBadAddress, http.StatusBadGateway, "missing port"},
		} {
			t.Run(c.name, func(t *testing.T) {
				f, err := s.fail(c.address)
				if err == nil {
					err = f.check(k, c.reason, c.status, c.text)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// Without any agent the answer comes at once.
func TestBehaviour09NoAgent(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := newStand(t, k, standOptions{})
		since := time.Now()
		f, err := s.fail("127.0.0.1:80")
		if err == nil {
			err = f.check(k, wire.ReasonNoAgent, http.StatusServiceUnavailable, "No agent available")
		}
		if err != nil {
			t.Error(err)
		}
		if k.connect() && f.text != "currently no tunnels available: No agent available" {
			t.Errorf("the body is %q", f.text)
		}
		within(t, since, 0, "the answer")
		s.quiet()
	})
}
