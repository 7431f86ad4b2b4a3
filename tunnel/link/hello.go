package link

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// ErrHeader says that a peer's metadata breaks the rules of COMPAT 1.3; the
// text names the header.
var ErrHeader = errors.New("bad header")

// maxName bounds knp-instance and knp-link, in bytes.
const maxName = 128

// AgentHello is what an agent says of itself in the request headers of Connect.
type AgentHello struct {
	AgentID string // may be empty
	// Identifiers is the agent's identifier list as it is configured (COMPAT
	// 7.3), neither parsed nor changed.
	Identifiers string
	// Extensions are those that the agent offers; none are listed if empty.
	Extensions wire.Extensions
	Instance   string // a UUID per process; empty for an old agent
	Slot       string // which of the process's links this is; empty for an old agent
	// Authorization holds the values of the authorization header, untouched;
	// what is asked of them depends on the server (COMPAT 7.4). Secret: do not log.
	Authorization []string
}

// BearerToken is the Authorization that presents a token, which is not trimmed.
func BearerToken(token string) []string { return []string{"Bearer " + token} }

// Metadata returns the request headers. A hello with neither extensions nor
// names of ours is what an old agent sends.
func (h AgentHello) Metadata() metadata.MD {
	md := metadata.MD{
		wire.HeaderAgentID:          {h.AgentID},
		wire.HeaderAgentIdentifiers: {h.Identifiers},
	}
	offer(md, h.Extensions)
	if h.Instance != "" {
		md[wire.HeaderInstance] = []string{h.Instance}
	}
	if h.Slot != "" {
		md[wire.HeaderLink] = []string{h.Slot}
	}
	if len(h.Authorization) > 0 {
		md[wire.HeaderAuthorization] = h.Authorization
	}
	return md
}

// ParseAgentHello reads an agent's request headers. The error, an ErrHeader,
// means that the stream must be refused.
func ParseAgentHello(md metadata.MD) (AgentHello, error) {
	h := AgentHello{
		Extensions:    Offered(md),
		Authorization: md.Get(wire.HeaderAuthorization),
	}
	var err error
	if h.AgentID, err = exactlyOne(md, wire.HeaderAgentID); err != nil {
		return AgentHello{}, err
	}
	if h.Identifiers, err = atMostOne(md, wire.HeaderAgentIdentifiers); err != nil {
		return AgentHello{}, err
	}
	if h.Instance, err = name(md, wire.HeaderInstance); err != nil {
		return AgentHello{}, err
	}
	if h.Slot, err = name(md, wire.HeaderLink); err != nil {
		return AgentHello{}, err
	}
	return h, nil
}

// ServerHello is what a server answers in the response headers of Connect.
type ServerHello struct {
	ServerID    string // may be empty
	ServerCount int    // as it is; 0 stands for "unknown"
	// Extensions are those that both sides listed; none are sent if empty.
	Extensions wire.Extensions
}

// Metadata returns the response headers.
func (h ServerHello) Metadata() metadata.MD {
	md := metadata.MD{
		wire.HeaderServerID:    {h.ServerID},
		wire.HeaderServerCount: {strconv.Itoa(h.ServerCount)},
	}
	offer(md, h.Extensions)
	return md
}

// ParseServerHello reads a server's response headers. Its Extensions are the
// server's answer restricted to offered, those that this agent had listed. The
// error, an ErrHeader, means that the link must be given up.
func ParseServerHello(md metadata.MD, offered wire.Extensions) (ServerHello, error) {
	h := ServerHello{Extensions: Answer(offered, Offered(md))}
	var err error
	if h.ServerID, err = exactlyOne(md, wire.HeaderServerID); err != nil {
		return ServerHello{}, err
	}
	count, err := exactlyOne(md, wire.HeaderServerCount)
	if err != nil {
		return ServerHello{}, err
	}
	if h.ServerCount, err = strconv.Atoi(count); err != nil {
		return ServerHello{}, fmt.Errorf("%w: %s: %q is not a decimal number", ErrHeader, wire.HeaderServerCount, count)
	}
	return h, nil
}

// Answer is what two lists of extensions have in common.
func Answer(ours, theirs wire.Extensions) wire.Extensions { return ours & theirs }

// Offered returns the extensions that a peer lists, on either service; unknown
// names are left out. A repeated key means none.
func Offered(md metadata.MD) wire.Extensions {
	return wire.ParseExtensions(md.Get(wire.HeaderExtensions)...)
}

// ExtensionsMetadata lists extensions, for a client of ProxyService and for the
// answer to it. It is empty if there are none: nothing may be sent to a peer
// that listed nothing.
func ExtensionsMetadata(ext wire.Extensions) metadata.MD {
	md := metadata.MD{}
	offer(md, ext)
	return md
}

// ClientExtensions are those that mean anything on a frontend's stream (DESIGN 4.1).
const ClientExtensions = wire.ExtHalfClose | wire.ExtReason

// offer adds the list of extensions to md.
func offer(md metadata.MD, ext wire.Extensions) {
	if ext != 0 {
		md[wire.HeaderExtensions] = []string{ext.String()}
	}
}

func exactlyOne(md metadata.MD, key string) (string, error) {
	values := md.Get(key)
	if len(values) != 1 {
		return "", fmt.Errorf("%w: %s: %d values, want exactly one", ErrHeader, key, len(values))
	}
	return values[0], nil
}

func atMostOne(md metadata.MD, key string) (string, error) {
	values := md.Get(key)
	if len(values) > 1 {
		return "", fmt.Errorf("%w: %s: %d values, want one at most", ErrHeader, key, len(values))
	}
	return strings.Join(values, ""), nil
}

// name reads one of our own headers.
func name(md metadata.MD, key string) (string, error) {
	v, err := atMostOne(md, key)
	if err == nil && len(v) > maxName {
		return "", fmt.Errorf("%w: %s: longer than %d bytes", ErrHeader, key, maxName)
	}
	return v, err
}
