package wire

import "testing"

func TestClassifyDialText(t *testing.T) {
	for text, want := range map[string]Reason{
		// Texts that COMPAT 1.7 has seen, and Go's others.
		"dial tcp 127.0.0.1:1: connect: connection refused":                                    ReasonRefused,
		"dial tcp: lookup nowhere on 10.0.0.10:53: no such host":                               ReasonUnknownHost,
		"dial tcp 10.1.2.3:80: i/o timeout":                                                    ReasonDialTimeout,
		"dial tcp: address 10.1.2.3: missing port in address":                                  ReasonBadAddress,
		"dial tcp: missing address":                                                            ReasonBadAddress,
		"dial tcp: address ::1:80: too many colons in address":                                 ReasonBadAddress,
		"dial tcp: address 99999: invalid port":                                                ReasonBadAddress,
		"dial tcp: lookup tcp/nosuch: unknown port":                                            ReasonBadAddress,
		"dial foo: unknown network foo":                                                        ReasonProtocol,
		"dial tcp 10.1.2.3:80: connect: no route to host":                                      ReasonUnreachable,
		"dial tcp 10.1.2.3:80: connect: network is unreachable":                                ReasonUnreachable,
		"dial tcp 10.1.2.3:80: connect: host is down":                                          ReasonUnreachable,
		"dial tcp 10.1.2.3:80: connect: connection timed out":                                  ReasonDialTimeout,
		"dial tcp 10.1.2.3:80: socket: too many open files":                                    ReasonTooManyFiles,
		"dial tcp: lookup foo on 10.0.0.10:53: server misbehaving":                             ReasonDNSTemporary,
		"dial tcp: lookup foo: Temporary failure in name resolution":                           ReasonDNSTemporary,
		"dial tcp: lookup foo on 10.0.0.10:53: read udp 10.0.0.1:5->10.0.0.10:53: i/o timeout": ReasonDialTimeout,
		"lookup foo: Timeout":                                                                  ReasonDialTimeout,
		"context deadline exceeded":                                                            ReasonDialTimeout,
		"dial tcp 10.1.2.3:80: operation was canceled":                                         ReasonCanceled,
		"dial tcp 10.1.2.3:80: connect: connection reset by peer":                              ReasonOther,
		// An old server's own.
		"No agent available": ReasonNoAgent,
		"currently no tunnels available: No agent available":           ReasonNoAgent,
		"timed out waiting for backend dial":                           ReasonBackendTimeout,
		"Backend dial timeout: timed out waiting for backend dial\r\n": ReasonBackendTimeout,
		// Names that the client chose say nothing.
		"dial tcp: lookup timeout.example.com: no such host": ReasonUnknownHost,
		"dial tcp: lookup connection-refused: no such host":  ReasonUnknownHost,
		// Words that are not at the end.
		"dial failed: connection refused (endpoint said so)": ReasonRefused,
		"timeout while dialling":                             ReasonDialTimeout,
		"":                                                   ReasonOther,
		"something else":                                     ReasonOther,
	} {
		if got := ClassifyDialText(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestReasonWords(t *testing.T) {
	seen := map[string]Reason{}
	for _, r := range Reasons() {
		w := r.String()
		if other, dup := seen[w]; dup {
			t.Errorf("%d and %d are both %q", other, r, w)
		}
		seen[w] = r
		if back, ok := ParseReason(w); !ok || back != r {
			t.Errorf("%q reads as %v", w, back)
		}
		if knownReason(uint64(r)) != r {
			t.Errorf("%d does not survive the wire", r)
		}
	}
	if len(seen) != 29 { // 21 of dials, 8 of ends: reason.go
		t.Errorf("%d reasons", len(seen))
	}
	for _, v := range []uint64{21, 63, 72, 1 << 32, 1<<32 + 3, 1<<64 - 1} {
		if got := knownReason(v); got != ReasonOther {
			t.Errorf("%d on the wire is %v", v, got)
		}
	}
	if Reason(21).String() != "21" {
		t.Errorf("an unknown reason is %q", Reason(21))
	}
	if r, ok := ParseReason(""); ok || r != ReasonOther {
		t.Error("the empty word is a reason")
	}
}

func TestExtensions(t *testing.T) {
	const all = "credit,half-close,reason,ping,ready,server-count,drain"
	if AllExtensions.String() != all || ParseExtensions(all) != AllExtensions {
		t.Errorf("all are %q", AllExtensions)
	}
	for _, c := range []struct {
		values []string
		want   Extensions
	}{
		{nil, 0},
		{[]string{""}, 0},
		{[]string{"ping"}, ExtPing},
		{[]string{" ping , future,,drain,ping"}, ExtPing | ExtDrain},
		{[]string{"Ping,drain"}, ExtDrain},
		{[]string{"PING"}, 0},
		{[]string{"ping", "drain"}, 0},
		{[]string{"ping", "ping"}, 0},
		{[]string{"credit half-close"}, 0},
	} {
		if got := ParseExtensions(c.values...); got != c.want {
			t.Errorf("%q: %q, want %q", c.values, got, c.want)
		}
	}
	if !AllExtensions.Has(ExtCredit|ExtDrain) || ExtPing.Has(ExtPing|ExtDrain) {
		t.Error("Has wants all of them")
	}
}

func TestPacketTypeNames(t *testing.T) {
	for typ, want := range map[PacketType]string{
		DialRequest: "DIAL_REQ", DialResponse: "DIAL_RSP", CloseRequest: "CLOSE_REQ", CloseResponse: "CLOSE_RSP",
		Data: "DATA", DialClose: "DIAL_CLS", Drain: "DRAIN", Credit: "CREDIT", HalfClose: "HALF_CLOSE",
		Ping: "PING", Pong: "PONG", Ready: "READY", ServerCount: "SERVER_COUNT", 99: "99", -1: "-1",
	} {
		if typ.String() != want {
			t.Errorf("%d is %q, want %q", int(typ), typ, want)
		}
	}
}

func TestDialError(t *testing.T) {
	cause := ErrTooLarge
	e := &DialError{Reason: ReasonRefused, Err: cause}
	if e.Error() != cause.Error() || e.Unwrap() != cause {
		t.Errorf("%v", e)
	}
	if e := (&DialError{Reason: ReasonNoAgent}); e.Error() != "no_agent" {
		t.Errorf("%v", e)
	}
}
