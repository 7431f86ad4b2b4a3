package frontgrpc

// lossStage is where a session is in the rule for first bytes (firstbytes.go).
type lossStage int

const (
	// silent: neither side has sent data.
	silent lossStage = iota
	// held: the first chunk was sent alone, and nothing may follow yet.
	held
	// watched: the client has been quiet for long enough that more may follow;
	// as long as nothing does, it may still tell that the chunk was lost.
	watched
	// lost: the client has lost the chunk, and will get it again in a moment.
	lost
	// spoken: as lost, but the client has spoken since. It knows its connection
	// now: sent once more, the chunk arrives.
	spoken
	// passed: the rule is over, or it never applied. CLOSE_REQ is a close.
	passed
)

// lossEvent is what moves it on.
type lossEvent int

const (
	chunkSent   lossEvent = iota // the first chunk is being sent, perhaps again
	clientSpoke                  // the client has sent data
	closeCame                    // a CLOSE_REQ, in time to be a report of loss
	quietOver                    // the client was quiet for quietTime
	reportsOver                  // a report would have come by now
	ruleOver                     // more is sent, a CLOSE_REQ is none in time, or the session is over
)

// next is the stage that follows l at e.
func (l lossStage) next(e lossEvent) lossStage {
	switch e {
	case chunkSent:
		switch l {
		case silent, lost:
			return held
		case spoken:
			return passed
		}
	case clientSpoke:
		if l == lost || l == spoken {
			return spoken
		}
		return passed
	case closeCame:
		if l == held || l == watched {
			return lost
		}
		return passed // there was nothing to lose, or it had been reported
	case quietOver:
		if l == held {
			return watched
		}
	case reportsOver:
		if l == held || l == watched {
			return passed
		}
	case ruleOver:
		return passed
	}
	return l
}

// repeats reports whether the chunk is to be sent again.
func (l lossStage) repeats() bool { return l == lost || l == spoken }
