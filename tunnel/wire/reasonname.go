package wire

import "strconv"

// String is the reason as a word, in the form that metric labels have. A number
// that is not known is that number.
func (r Reason) String() string {
	if w := r.word(); w != "" {
		return w
	}
	return strconv.FormatUint(uint64(r), 10)
}

// ParseReason is the reason with that word, if there is one.
func ParseReason(word string) (Reason, bool) {
	for _, r := range Reasons() {
		if r.word() == word {
			return r, true
		}
	}
	return ReasonOther, false
}

// Reasons are all that there are, in the order of their numbers; for metrics
// that show every label value from the start.
func Reasons() []Reason {
	var all []Reason
	for r := ReasonNone; r <= lastReason; r++ {
		if r.word() != "" {
			all = append(all, r)
		}
	}
	return all
}

// lastReason is the highest number in use.
const lastReason = ReasonProtocolError

// knownReason is the reason with number v on the wire.
func knownReason(v uint64) Reason {
	if v <= uint64(lastReason) && Reason(v).word() != "" {
		return Reason(v)
	}
	return ReasonOther
}

//nolint:gocyclo // one case for each reason
func (r Reason) word() string {
	if r >= ReasonReset {
		return r.endWord()
	}
	switch r {
	case ReasonNone:
		return "none"
	case ReasonOther:
		return "other"
	case ReasonNoAgent:
		return "no_agent"
	case ReasonRefused:
		return "refused"
	case ReasonDialTimeout:
		return "dial_timeout"
	case ReasonUnreachable:
		return "unreachable"
	case ReasonUnknownHost:
		return "unknown_host"
	case ReasonDNSTemporary:
		return "dns_temporary"
	case ReasonTooManyFiles:
		return "too_many_files"
	case ReasonPolicy:
		return "policy"
	case ReasonBadAddress:
		return "bad_address"
	case ReasonProtocol:
		return "protocol"
	case ReasonBackendTimeout:
		return "backend_timeout"
	case ReasonBackendLost:
		return "backend_lost"
	case ReasonCanceled:
		return "canceled"
	case ReasonLimit:
		return "limit"
	case ReasonShutdown:
		return "shutdown"
	case ReasonClientTimeout:
		return "client_timeout"
	case ReasonTunnelClosed:
		return "tunnel_closed"
	case ReasonAlreadyDialed:
		return "already_dialed"
	case ReasonStreamSetup:
		return "stream_setup"
	}
	return ""
}

// endWord is word for the reasons why a tunnel ended.
func (r Reason) endWord() string {
	switch r {
	case ReasonReset:
		return "reset"
	case ReasonAborted:
		return "aborted"
	case ReasonLinkLost:
		return "link_lost"
	case ReasonStuck:
		return "stuck"
	case ReasonCreditViolation:
		return "credit_violation"
	case ReasonCloseTimeout:
		return "close_timeout"
	case ReasonHalfCloseTimeout:
		return "half_close_timeout"
	case ReasonProtocolError:
		return "protocol_error"
	}
	return ""
}
