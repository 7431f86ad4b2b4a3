package rig

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func unitSize(unit string) int64 {
	switch unit {
	case "KiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	}
	return 1
}

// parseSize reads "100", "100KiB", "64MiB" or "1GiB".
func parseSize(s string) (int64, error) {
	number, unit := s, ""
	for _, u := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(s, u); ok {
			number, unit = rest, u
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size such as 100, 100KiB or 64MiB", s)
	}
	return n * unitSize(unit), nil
}

// formatSize is the shortest form that is exact.
func formatSize(n int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := unitSize(unit); n > 0 && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseRate reads a size per second, "1MiB/s".
func parseRate(s string) (int64, error) {
	size, ok := strings.CutSuffix(s, "/s")
	if !ok {
		return 0, fmt.Errorf("%q is not a rate such as 1MiB/s", s)
	}
	return parseSize(size)
}

// formatStamp is a time since the start, in tenths of a second.
func formatStamp(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}
