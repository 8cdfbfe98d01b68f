package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
)

// flags is the command line containerd gives, and the keeper's own.
type flags struct {
	namespace, address, publish, id, bundle string
	debug, version, info                    bool
	action                                  string
}

// parseFlags knows both -x and --x. Arguments after the action are ignored, as
// in containerd's shims.
func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.namespace, "namespace", "", "")
	set.StringVar(&f.address, "address", "", "")
	set.StringVar(&f.publish, "publish-binary", "", "")
	set.StringVar(&f.id, "id", "", "")
	set.StringVar(&f.bundle, "bundle", "", "")
	set.BoolVar(&f.debug, "debug", false, "")
	set.BoolVar(&f.version, "v", false, "")
	set.BoolVar(&f.version, "version", false, "")
	set.BoolVar(&f.info, "info", false, "")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return f, errors.New("usage: -namespace NS -id ID -address ADDRESS [-publish-binary BIN] [-bundle PATH] [-debug] start|delete, or -v, or -info")
		}
		return f, fmt.Errorf("command line: %w", err)
	}
	f.action = set.Arg(0)
	return f, nil
}

func (f flags) check() error {
	if err := checkIdentifier("namespace", f.namespace); err != nil {
		return err
	}
	return checkIdentifier("id", f.id)
}

// identifier is containerd's rule (pkg/identifiers): safe as part of a path.
var identifier = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

const maxIdentifier = 76

func checkIdentifier(flag, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("-%s is missing", flag)
	case len(value) > maxIdentifier:
		return fmt.Errorf("-%s has %d characters, at most %d are allowed", flag, len(value), maxIdentifier)
	case !identifier.MatchString(value):
		return fmt.Errorf("-%s %q is no identifier: letters, digits, and single . _ - between them", flag, value)
	}
	return nil
}
