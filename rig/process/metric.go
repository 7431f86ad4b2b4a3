package process

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// metric finds the value of a series, given with its labels as it is printed.
func metric(t testing.TB, url, series string) float64 {
	t.Helper()
	_, body, err := Get(url)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%s: %q", series, line)
			}
			return n
		}
	}
	return -1
}

// Scrape reads every series at url, by its name with labels as they are printed.
func Scrape(url string) (map[string]float64, error) {
	_, body, err := Get(url)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			if n, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
				all[line[:i]] = n
			}
		}
	}
	return all, nil
}

// shortDir makes a folder with a short path, removed when the test ends.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // a leftover in the temporary folder harms nobody
	return dir
}
