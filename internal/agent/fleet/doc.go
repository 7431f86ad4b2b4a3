// Package fleet keeps one link to every server: it decides when to connect and
// to what, which of two links to one server stays, and how an agent leaves.
//
// The decisions are in plan, which knows no clock and no network and is tested
// as a table. Fleet runs it: a goroutine per attempt, few at a time, and per link.
package fleet
