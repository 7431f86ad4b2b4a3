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
	// passed: the rule is over, or it never applied. CLOSE_REQ is a close.
	passed
)

// lossEvent is what moves it on.
type lossEvent int

const (
	chunkSent    lossEvent = iota // the first chunk is being sent
	clientSpoke                   // the client has sent data: it knows its connection
	lossReported                  // a CLOSE_REQ that may be a report of loss
	quietOver                     // the client was quiet for quietTime
	reportsOver                   // a report of loss would have come by now, or there were too many
	moreSent                      // something else is being sent, or the session is over
)

// next is the stage that follows l at e.
func (l lossStage) next(e lossEvent) lossStage {
	switch {
	case l == silent && e == chunkSent:
		return held
	case l == held && e == quietOver:
		return watched
	case (l == held || l == watched) && e == lossReported:
		return held // sent again
	case l == silent && (e == quietOver || e == reportsOver):
		return silent
	case l == watched && (e == quietOver || e == chunkSent), l == held && e == chunkSent:
		return l
	}
	return passed
}
