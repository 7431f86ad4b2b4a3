package frontconnect

// sign is a set of what a socket's medium has told about the client.
type sign uint8

const (
	signFIN  sign = 1 << iota // it sends no more
	signHUP                   // it is gone in both directions
	signFail                  // its connection failed: a reset, a keepalive unanswered
)
