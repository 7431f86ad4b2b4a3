package servercounter

import (
	"errors"
	"fmt"
)

// SourceConfig says which of an agent's counters hold: the flags
// --server-count-source and --respect-received-server-count.
type SourceConfig struct {
	// Own counts without asking servers (a file, leases); nil if there is none.
	Own ServerCounter
	// Received holds what servers answered.
	Received ServerCounter
	// Source is "default" (or ""): Own if there is one, else Received; or "max":
	// the larger of both.
	Source string
	// Respect is whether what servers answer counts at all. nil decides by
	// itself: yes without Own and with "max", no otherwise. Yes beside Own is
	// the same as "max".
	Respect *bool
}

// NewSource composes an agent's counter. What it counts is at least 1. An error
// is a contradiction between the flags.
func NewSource(cfg SourceConfig) (ServerCounter, error) {
	if cfg.Source != "" && cfg.Source != "default" && cfg.Source != "max" {
		return nil, fmt.Errorf("unknown server count source %q: valid are default, max", cfg.Source)
	}
	respect := cfg.Own == nil || cfg.Source == "max"
	if cfg.Respect != nil {
		respect = *cfg.Respect
	}
	switch {
	case cfg.Source == "max" && !respect:
		return nil, errors.New("the server count source max compares with what servers answer, which is not to be respected")
	case cfg.Own == nil && !respect:
		return Static(1), nil
	case cfg.Own == nil:
		return AtLeast(1, cfg.Received), nil
	case !respect:
		return AtLeast(1, cfg.Own), nil
	}
	return Max(Static(1), cfg.Own, cfg.Received), nil
}
