package rig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Play runs a scenario, line by line, and returns its transcript: each line, and
// below it what happened. The error says which lines could not be run and which
// expectations failed; the scenario goes on after them. name is for errors.
func Play(c *Cluster, name, scenario string) (transcript string, err error) {
	var out strings.Builder
	var errs []error
	for i, line := range strings.Split(strings.TrimRight(scenario, "\n"), "\n") {
		fmt.Fprintln(&out, line)
		said, err := c.line(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", name, i+1, line, err))
		}
		for _, s := range said {
			fmt.Fprintln(&out, "\t"+s)
		}
	}
	if err := c.Nothing(); err != nil {
		errs = append(errs, fmt.Errorf("%s: at the end: %w", name, err))
	}
	return out.String(), errors.Join(errs...)
}

// line runs one line and returns what is to be written below it.
func (c *Cluster) line(line string) ([]string, error) {
	words := strings.Fields(line)
	// A comment begins with a word, since address#1 is a connection's name.
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i >= 0 {
		words = words[:i]
	}
	if len(words) == 0 {
		return nil, nil
	}
	cmd, ok := commands()[words[0]]
	if !ok {
		return nil, errors.New("no such command")
	}
	args, err := cmd.parse(words[1:])
	if err != nil {
		return nil, fmt.Errorf("%w; it is: %s %s", err, words[0], cmd.usage)
	}
	said, err := cmd.run(c, args)
	return append(said, c.Settle()...), err
}

// command is a word of the language.
type command struct {
	usage string
	// least and most say how many plain words it takes.
	least, most int
	options     []string // NAME=VALUE
	flags       []string // words on their own
	run         func(*Cluster, args) ([]string, error)
}

// args are the words behind a command's name.
type args struct {
	words   []string
	options map[string]string
	flags   map[string]bool
}

func (cmd command) parse(words []string) (args, error) {
	a := args{options: map[string]string{}, flags: map[string]bool{}}
	for _, w := range words {
		name, value, option := strings.Cut(w, "=")
		switch {
		case option && slices.Contains(cmd.options, name):
			a.options[name] = value
		case option:
			return a, fmt.Errorf("there is no %s=", name)
		case slices.Contains(cmd.flags, w):
			a.flags[w] = true
		default:
			a.words = append(a.words, w)
		}
	}
	if n := len(a.words); n < cmd.least || n > cmd.most {
		return a, errors.New("wrong number of words")
	}
	return a, nil
}

// word is the word of that number, "" if it was left out.
func (a args) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

// duration is an option's value, 0 if it was left out.
func (a args) duration(name string) (time.Duration, error) {
	if a.options[name] == "" {
		return 0, nil
	}
	return time.ParseDuration(a.options[name])
}

func (a args) number(name string) (int, error) {
	if a.options[name] == "" {
		return 0, nil
	}
	return strconv.Atoi(a.options[name])
}
