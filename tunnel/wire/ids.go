package wire

// DialID names one dial. The dialling side chooses it (a client, or the server
// for each attempt on a backend); the wire calls it "random". It is
// non-negative. COMPAT 1.5.
type DialID int64

// ConnectionID names one established connection within ONE link. The agent
// chooses it, counting from 1; 0 means none. Two links use the same numbers, so
// a tunnel's key is always (link, connection ID). COMPAT 1.5.
type ConnectionID int64
