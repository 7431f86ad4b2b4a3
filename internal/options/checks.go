package options

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// File checks that path, if set, exists. What is in it is checked when it is
// loaded. COMPAT 3.0.
func File(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Invalid(flag, path, "no such file")
		}
		return Invalid(flag, path, "%v", err)
	}
	return nil
}

// Pair checks a certificate and its key: both or neither, and both exist.
func Pair(certFlag, cert, keyFlag, key string) error {
	if err := File(keyFlag, key); err != nil {
		return err
	}
	if key != "" && cert == "" {
		return Invalid(keyFlag, key, "needs --%s beside it", certFlag)
	}
	if err := File(certFlag, cert); err != nil {
		return err
	}
	if cert != "" && key == "" {
		return Invalid(certFlag, cert, "needs --%s beside it", keyFlag)
	}
	return nil
}

// Port checks a TCP port to listen on or to connect to: 1 to 65535. COMPAT 11.
func Port(flag string, port int) error {
	if port < 1 || port > 65535 {
		return Invalid(flag, port, "must be a port from 1 to 65535")
	}
	return nil
}

// NotNegative checks a duration.
func NotNegative(flag string, d time.Duration) error {
	if d < 0 {
		return Invalid(flag, d, "must not be negative")
	}
	return nil
}

// Positive checks a number that must be at least 1.
func Positive(flag string, n int) error {
	if n < 1 {
		return Invalid(flag, n, "must be greater than zero")
	}
	return nil
}

// OneOf checks that value is one of valid, in exact spelling, and lists them.
func OneOf(flag, value string, valid ...string) error {
	for _, v := range valid {
		if value == v {
			return nil
		}
	}
	named := make([]string, 0, len(valid))
	for _, v := range valid {
		if v != "" {
			named = append(named, v)
		}
	}
	return Invalid(flag, value, "must be one of: %s", strings.Join(named, ", "))
}

// Profiling checks the pair of profiling flags.
func Profiling(profiling, contention bool) error {
	if contention && !profiling {
		return Invalid("enable-contention-profiling", true, "needs --enable-profiling")
	}
	return nil
}
