// Package transport makes the listeners, dialers and TLS configurations of both
// binaries. It imports nothing of ours.
//
// Listeners: a Unix socket that is never more open than 0770 and is removed only
// while it is still this listener's (ListenUnix), and TCP with the options
// that a proxy needs (ListenTCP). Both hand out the kernel's own connection
// types, because gRPC sets socket options only on those.
//
// TLS: ServerTLS and ClientTLS read their files when they are made, and again
// when the files change; a change that cannot be used leaves the last good
// state in place. Their Credentials put the raw net.Conn into a stream's
// AuthInfo, so that whoever must drop a frozen peer can close the connection
// below it.
package transport
