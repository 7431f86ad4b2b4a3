// Package suite is what every version of the public client library is put
// through: its generated types are the oracle for our codec, and the library
// itself is a real client of our server and agent, which run as real processes.
//
// The package is written for the oldest version. Each version has a module of its
// own beside this one, which replaces the library's version and calls the tests
// here; what only newer versions have they pass in.
package suite
