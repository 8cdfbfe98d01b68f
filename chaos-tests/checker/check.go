package checker

import "fmt"

// Rule is one check with the name that its errors begin with.
type Rule struct {
	Name  string
	Check func(History) []error
}

// Rules lists every check.
func Rules() []Rule {
	return []Rule{
		{"Identity", Identity},
		{"Acknowledged", Acknowledged},
		{"Refused", Refused},
		{"OneAnswer", OneAnswer},
		{"StartedOnce", StartedOnce},
		{"OneExit", OneExit},
		{"EventOrder", EventOrder},
		{"Delivered", Delivered},
		{"Times", Times},
		{"Output", Output},
		{"Agreement", Agreement},
		{"Left", Left},
	}
}

// Check returns what must not be, in the order of the rules; nothing where all is well.
func Check(h History) []error {
	var errs []error
	for _, rule := range Rules() {
		for _, err := range rule.Check(h) {
			errs = append(errs, fmt.Errorf("%s: %w", rule.Name, err))
		}
	}
	return errs
}
