package lease

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// ParseLabels reads the server's --lease-label: key=value pairs separated by
// commas, blanks around keys and values being of no account. It must name at
// least one label, because the collector deletes what carries them.
func ParseLabels(s string) (map[string]string, error) {
	parsed := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(value, "=") {
			return nil, fmt.Errorf("lease label %q: not of the form key=value", pair)
		}
		parsed[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	if _, err := labels.ValidatedSelectorFromSet(parsed); err != nil {
		return nil, fmt.Errorf("lease label %q: %w", s, err)
	}
	return parsed, nil
}

// CheckSelector reports what is wrong with an agent's --lease-label-selector.
// The empty selector takes every lease of the namespace.
func CheckSelector(s string) error {
	_, err := labels.Parse(s)
	return err
}
