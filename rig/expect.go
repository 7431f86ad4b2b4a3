package rig

import (
	"errors"
	"fmt"
	"strings"
)

// runExpect checks what holds now.
func runExpect(c *Cluster, a args) ([]string, error) {
	if _, err := c.process(a.word(0)); err == nil {
		return nil, c.expectNumbers(a.word(0), a.options)
	}
	e, err := c.End(a.word(0))
	if err != nil {
		return nil, err
	}
	return nil, e.expect(a.words[1:])
}

// expectNumbers compares how many of everything a process has.
func (c *Cluster) expectNumbers(process string, want map[string]string) error {
	if len(want) == 0 {
		return errors.New("expects nothing of a process")
	}
	var errs []error
	for what, number := range want {
		found := false
		for _, f := range c.look() {
			if f.what != process+" "+what {
				continue
			}
			found = true
			if value := f.count(); value != number {
				errs = append(errs, fmt.Errorf("%s: %s", f.what, f.value))
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s has no %s", process, what))
		}
	}
	return errors.Join(errs...)
}

// count is the value as a number; a list counts its members.
func (f fact) count() string {
	if f.must0 || f.value == "0" {
		return f.value
	}
	return fmt.Sprint(1 + strings.Count(f.value, ", "))
}

// expect checks one fact about an end.
func (e *End) expect(words []string) error {
	s := e.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	var holds bool
	switch want := strings.Join(words, " "); {
	case want == pending || want == up:
		holds = e.dial == want
	case want == "open":
		holds = e.dial == up && e.fate == "" && !e.closed
	case want == "eof":
		holds = e.fate == "eof"
	case want == "closed":
		holds = e.dial == up && e.closed
	case strings.HasPrefix(want, "failed "):
		holds = e.dial == words[1]
	case strings.HasPrefix(want, "broken "):
		holds = e.fate == words[1]
	case strings.HasPrefix(want, "from "):
		holds = e.from == words[1]
	case strings.HasPrefix(want, "got "):
		holds = e.in.String() == strings.TrimPrefix(want, "got ")
	default:
		return fmt.Errorf("nothing is called %q", want)
	}
	if !holds {
		return fmt.Errorf("%s is %s", e.name, s)
	}
	return nil
}
