package wire

// String is the reason as a word.
func (r Reason) String() string { return "" }
