package wire

// Extensions is a set of the protocol's negotiated additions.
type Extensions uint16

// The extensions. PROTOCOL.md says what each permits.
const (
	ExtCredit Extensions = 1 << iota
	ExtHalfClose
	ExtReason
	ExtPing
	ExtReady
	ExtServerCount
	ExtDrain
)

// Metadata keys, as they travel (lower case). COMPAT 1.3; DESIGN 4.1 for the last three.
const (
	HeaderAgentID          = "agentid"
	HeaderAgentIdentifiers = "agentidentifiers"
	HeaderAuthorization    = "authorization"
	HeaderServerID         = "serverid"
	HeaderServerCount      = "servercount"
	HeaderExtensions       = "knp-extensions"
	HeaderInstance         = "knp-instance"
	HeaderLink             = "knp-link"
)

// Has reports whether every extension of x is in e.
func (e Extensions) Has(x Extensions) bool { return e&x == x }
