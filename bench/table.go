package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// row is one line of the table: a measured value against its budget.
type row struct {
	what     string
	measured string  // in words, with the yardstick's figure beside it
	value    float64 // in the budget's unit
	budget   float64
	atLeast  bool // the budget is a lower bound
	unit     string
}

// verdict compares the value with the budget, and with the bound that may never
// be missed: half of a lower bound, twice an upper one.
func (r row) verdict() string {
	ratio := r.value / r.budget
	if r.atLeast {
		ratio = r.budget / r.value
	}
	switch {
	case ratio <= 1:
		return "within"
	case ratio <= 2:
		return "over, within twice"
	}
	return "BEYOND TWICE"
}

func (r row) bound() string {
	sign := "<="
	if r.atLeast {
		sign = ">="
	}
	return fmt.Sprintf("%s %.3g%s", sign, r.budget, r.unit)
}

// table collects rows and prints them.
type table struct {
	rows   []row
	failed []string
}

func (t *table) add(r row) { t.rows = append(t.rows, r) }

// fail notes a row that could not be measured.
func (t *table) fail(what string, err error) {
	t.failed = append(t.failed, fmt.Sprintf("%s: %v", what, err))
}

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tvalue\tbudget\tverdict\tmeasured")
	fmt.Fprintln(w, "----\t-----\t------\t-------\t--------")
	for _, r := range t.rows {
		fmt.Fprintf(w, "%s\t%.3g%s\t%s\t%s\t%s\n", r.what, r.value, r.unit, r.bound(), r.verdict(), r.measured)
	}
	w.Flush()
	if len(t.failed) > 0 {
		fmt.Fprintf(out, "\nnot measured:\n  %s\n", strings.Join(t.failed, "\n  "))
	}
}

// bad reports whether a figure is missing or beyond twice its budget.
func (t *table) bad() bool {
	if len(t.failed) > 0 {
		return true
	}
	for _, r := range t.rows {
		if r.verdict() == "BEYOND TWICE" {
			return true
		}
	}
	return false
}
