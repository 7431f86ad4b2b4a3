package options

import (
	"errors"
	"fmt"
)

// FlagError is a command line that cannot be run. Its text is one line that
// names the flag, its value and the cause.
type FlagError struct {
	Flag  string // without dashes
	Value any
	Cause string
}

// Error implements error.
func (e *FlagError) Error() string {
	if s, ok := e.Value.(string); ok && s == "" {
		return fmt.Sprintf("--%s: %s", e.Flag, e.Cause)
	}
	return fmt.Sprintf("--%s=%v: %s", e.Flag, e.Value, e.Cause)
}

// Invalid returns a FlagError whose cause is formatted.
func Invalid(flag string, value any, format string, args ...any) error {
	return &FlagError{Flag: flag, Value: value, Cause: fmt.Sprintf(format, args...)}
}

// NotBuilt refuses a flag that restricts who may enter and whose feature does
// not exist in this version: ignoring it would leave a door open silently.
func NotBuilt(flag string, value any) error {
	return Invalid(flag, value, "not built yet in this version; it restricts who may enter, so it is refused instead of ignored")
}

// First returns the first error that is not nil.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// errHelp and errVersion end parsing without a run.
var (
	errHelp    = errors.New("help asked for")
	errVersion = errors.New("version asked for")
)
