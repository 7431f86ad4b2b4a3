package rig

import (
	"strings"
	"testing"
)

// A rig that does not notice anything proves nothing.
func TestScenariosCanFail(t *testing.T) {
	const cluster = "server s1\nagent a1 server=s1\nendpoint e:1 echo\nendpoint e:2 stuck\ndial c1 via s1 e:1\nwrite c1 1KiB\n"
	for _, c := range []struct{ name, scenario, want string }{
		{"wrong size", cluster + "expect c1 got 2KiB of c1\nclose c1\nwait 1s", "t:7: expect c1 got 2KiB of c1: c1 is open, got 1KiB of c1"},
		{"wrong sender", cluster + "expect c1 got 1KiB of c2\nclose c1\nwait 1s", "c1 is open, got 1KiB of c1"},
		{"wrong agent", cluster + "expect e:1#1 from a2\nclose c1\nwait 1s", "e:1#1 is from a1"},
		{"wrong state", cluster + "expect c1 failed refused\nclose c1\nwait 1s", "c1 is open"},
		{"wrong number", cluster + "expect s1 tunnels=2\nclose c1\nwait 1s", "s1 tunnels: 1"},
		{"unknown fact", cluster + "expect c1 happy\nclose c1\nwait 1s", `nothing is called "happy"`},
		{"unknown number", cluster + "expect a1 tunnels=1\nclose c1\nwait 1s", "a1 has no tunnels"},
		{"tunnel left", cluster, "left: s1 tunnels 1"},
		{"connection left", cluster, "left: a1 connections 1"},
		{"client left", cluster, "left: c1 is open"},
		{"dial left", "server s1\nagent a1 server=s1\nendpoint e:1 black-hole\ndial c1 via s1 e:1", "left: s1 dials 1"},
		{"unknown command", "sever s1", "no such command"},
		{"too few words", "dial c1 via s1", "wrong number of words; it is: dial CLIENT via SERVER"},
		{"unknown option", "server s1 moed=grpc", "there is no moed="},
		{"bad mode", "server s1 mode=ftp", `there is no mode "ftp"`},
		{"bad kind", "endpoint e:1 ehco", `there is no kind of endpoint "ehco"`},
		{"bad route", "server s1\nagent a1 server=s1\nroute a1 e:1 nowhere", `there is no route "nowhere"`},
		{"bad size", "endpoint e:1 source 64MB", `"64MB" is not a size`},
		{"bad time", "wait soon", "invalid duration"},
		{"nobody", "stall a1", "there is nobody called a1"},
		{"no end", "close c1", "there is no client and no connection c1"},
		{"no process", "kill s1", "there is no process s1"},
		{"name taken", "server s1\nserver s1", "the name s1 is taken"},
		{"runs already", "server s1\nstart s1", "s1 is running"},
		{"name in use", cluster + "dial c1 via s1 e:2\nclose c1\nwait 1s", "c1 is not over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if transcript, err := play(t, "t", c.scenario); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nnot with %q; the transcript:\n%s", err, c.want, transcript)
			}
		})
	}
}

// Bytes that are not what the sender sent are a fault, whatever is expected.
func TestStreamsNoticeEverything(t *testing.T) {
	stream := make([]byte, 3*blockSize)
	newOutgoing("c1").next(stream)
	other := make([]byte, len(stream))
	newOutgoing("c2").next(other)
	splice := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	const middle = 40_000
	for _, c := range []struct {
		name  string
		bytes []byte
		good  bool
	}{
		{"whole", stream, true},
		{"one lost", splice(stream[:middle], stream[middle+1:]), false},
		{"one doubled", splice(stream[:middle], stream[middle-1:]), false},
		{"a buffer lost", splice(stream[:middle], stream[middle+32<<10:]), false},
		{"another's", splice(stream[:middle], other[middle:]), false},
		{"swapped", splice(stream[:middle], stream[middle+8:middle+16], stream[middle:middle+8], stream[middle+16:]), false},
		{"begins too late", stream[100:], false},
	} {
		for _, piece := range []int{1, 7, 32 << 10, len(stream)} {
			var in incoming
			var err error
			for b := c.bytes; len(b) > 0 && err == nil; {
				n := min(piece, len(b))
				err = in.take(b[:n])
				b = b[n:]
			}
			if (err == nil) != c.good {
				t.Errorf("%s, in pieces of %d: %v", c.name, piece, err)
			}
			if c.good && in.String() != "196563 of c1" {
				t.Errorf("got %v", &in)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	for text, n := range map[string]int64{"0": 0, "100": 100, "1KiB": 1 << 10, "100KiB": 100 << 10, "64MiB": 64 << 20, "2GiB": 2 << 30} {
		if got, err := parseSize(text); err != nil || got != n {
			t.Errorf("%s is %d, %v", text, got, err)
		}
		if got := formatSize(n); got != text {
			t.Errorf("%d is %s", n, got)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5MiB", "1KB", "1 KiB"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// A transcript is worth something only if it is the same each time.
func TestRepeatable(t *testing.T) {
	const scenario = `server s1
server s2
agent a1 server=s1
agent a2 server=s1
agent a3 server=s2
endpoint e:1 echo
wait 10s
dial c1 via s1 e:1
dial c2 via s1 e:1
dial c3 via s2 e:1
write c1 1MiB
restart s1
wait 20s
dial c4 via s1 e:1
close c2
close c3
close c4
wait 1s`
	first, err := play(t, "t", scenario)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := play(t, "t", scenario)
		if line, ours, theirs := difference(again, first); line > 0 || err != nil {
			t.Fatalf("line %d, once:\n%s\nthen:\n%s\n%v", line, theirs, ours, err)
		}
	}
}
