package link

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

func TestAgentHello(t *testing.T) {
	for _, h := range []AgentHello{
		{},
		{AgentID: "a", Identifiers: "ipv4=1.2.3.4&host=x"},
		{AgentID: "a", Extensions: wire.AllExtensions, Instance: "uuid", Slot: "3", Authorization: BearerToken("t\n")},
	} {
		got, err := ParseAgentHello(h.Metadata())
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, h)
		}
	}
	old := AgentHello{AgentID: "a"}.Metadata()
	if len(old) != 2 || old.Get("agentIdentifiers")[0] != "" {
		t.Errorf("an old agent's headers are %v", old)
	}
}

func TestAgentHelloIsStrict(t *testing.T) {
	for _, tt := range []struct {
		md     metadata.MD
		header string // "" for none to blame
	}{
		{metadata.MD{}, "agentid"},
		{metadata.Pairs("agentID", "a", "agentID", "a"), "agentid"},
		{metadata.Pairs("agentID", "a", "agentIdentifiers", "", "agentIdentifiers", ""), "agentidentifiers"},
		{metadata.Pairs("agentID", "a", "knp-instance", "x", "knp-instance", "y"), "knp-instance"},
		{metadata.Pairs("agentID", "a", "knp-link", strings.Repeat("9", 129)), "knp-link"},
		{metadata.Pairs("AGENTID", ""), ""},
		{metadata.Pairs("agentid", "a", "authorization", "x", "authorization", "y"), ""},
	} {
		_, err := ParseAgentHello(tt.md)
		if tt.header == "" {
			if err != nil {
				t.Errorf("%v: %v", tt.md, err)
			}
		} else if !errors.Is(err, ErrHeader) || !strings.Contains(err.Error(), tt.header+":") {
			t.Errorf("%v: %v", tt.md, err)
		}
	}
}

func TestServerHello(t *testing.T) {
	for _, h := range []ServerHello{
		{},
		{ServerID: "s", ServerCount: -3},
		{ServerID: "s", ServerCount: 2, Extensions: wire.ExtCredit | wire.ExtPing},
	} {
		got, err := ParseServerHello(h.Metadata(), wire.AllExtensions)
		if err != nil || got != h {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
	}
	// What the agent had not listed does not count.
	got, err := ParseServerHello(ServerHello{Extensions: wire.AllExtensions}.Metadata(), wire.ExtPing)
	if err != nil || got.Extensions != wire.ExtPing {
		t.Errorf("got %+v, %v", got, err)
	}
	for header, md := range map[string]metadata.MD{
		"serverid":    metadata.Pairs("serverCount", "1"),
		"servercount": metadata.Pairs("serverID", "a", "serverCount", "one"),
	} {
		if _, err := ParseServerHello(md, 0); !errors.Is(err, ErrHeader) || !strings.Contains(err.Error(), header+":") {
			t.Errorf("%v: %v", md, err)
		}
	}
	for _, md := range []metadata.MD{
		metadata.Pairs("serverID", "a", "serverID", "b", "serverCount", "1"),
		metadata.Pairs("serverID", "a", "serverCount", "1", "serverCount", "1"),
		metadata.Pairs("serverID", "a"),
		metadata.Pairs("serverID", "a", "serverCount", ""),
	} {
		if _, err := ParseServerHello(md, 0); !errors.Is(err, ErrHeader) {
			t.Errorf("%v: %v", md, err)
		}
	}
}

func TestExtensionLists(t *testing.T) {
	if md := ExtensionsMetadata(0); len(md) != 0 {
		t.Errorf("no extensions make %v", md)
	}
	if got := Offered(ExtensionsMetadata(wire.AllExtensions)); got != wire.AllExtensions {
		t.Errorf("got %v", got)
	}
	repeated := metadata.Pairs("knp-extensions", "credit", "knp-extensions", "credit")
	if got := Offered(repeated); got != 0 {
		t.Errorf("a repeated key gave %v", got)
	}
	if got := Answer(wire.ExtCredit|wire.ExtPing, wire.ExtPing|wire.ExtReason); got != wire.ExtPing {
		t.Errorf("got %v", got)
	}
}
