package options

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a flag value: a number of bytes, plain or with Ki, Mi or Gi.
type Bytes int64

// String implements pflag.Value.
func (b *Bytes) String() string {
	n := int64(*b)
	for _, unit := range []struct {
		name string
		size int64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n != 0 && n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Set implements pflag.Value.
func (b *Bytes) Set(text string) error {
	number, unit := text, int64(1)
	for name, size := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, name); ok {
			number, unit = rest, size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a number of bytes such as 65536, 64Ki, 512Mi or 2Gi", text)
	}
	*b = Bytes(n * unit)
	return nil
}

// Type implements pflag.Value.
func (b *Bytes) Type() string { return "bytes" }
