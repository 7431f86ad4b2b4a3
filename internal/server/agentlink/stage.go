package agentlink

// stage is where a link is between its handshake and its end.
type stage int

const (
	// waiting: the agent has its headers, but no dial may come to this link yet:
	// a new agent has not said READY, or an old one may be probing with a second
	// link that it will drop.
	waiting stage = iota
	// joined: the link is a backend.
	joined
	// left: the link is over, or another one has taken its place. It never joins
	// again.
	left
)

// event is what moves a link from stage to stage.
type event int

const (
	ready    event = iota // the agent keeps the link: READY, or for an old agent time has passed
	replaced              // the same agent has a newer link in the same slot
	ended                 // the stream is over
)

// next is the stage that follows s at e.
func next(s stage, e event) stage {
	switch {
	case e != ready:
		return left
	case s == waiting:
		return joined
	}
	return s
}
