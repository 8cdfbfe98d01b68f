package store

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"perdure/store/lifecycle"
)

// Timeline prints a journal as a table for people: what `perdure journal BUNDLE` says. Times are relative to the
// creation of the journal.
func Timeline(w io.Writer, c *Contents) error {
	p := &printer{Writer: w}
	p.printf("container %s in namespace %s, instance %s\n", c.Meta.ID, c.Meta.Namespace, c.Meta.Instance)
	p.printf("bundle    %s\n", c.Meta.Bundle)
	p.printf("created   %s by perdure %s, boot %s\n", c.Meta.Created.UTC().Format(time.RFC3339Nano), c.Meta.Writer, c.Meta.BootID)
	p.printf("now       %s\n\n", summary(c.State))
	t := tabwriter.NewWriter(p, 0, 8, 2, ' ', 0)
	row(t, "TIME", "SEQ", "PROCESS", "OPERATION", "PHASE", "STATE", "PID", "RESULT")
	for _, r := range c.Records {
		row(t, since(c.Meta.Created, r.At), fmt.Sprint(r.Seq), process(r.Exec), string(r.Op), phase(r), states(r), pid(r.Process), result(r))
	}
	p.flush(t)
	if len(c.Outbox) == 0 {
		p.printf("\nno event is waiting to be delivered\n")
		return p.err
	}
	p.printf("\n%s waiting to be delivered:\n", count(len(c.Outbox), "event is", "events are"))
	row(t, "TIME", "ROW", "TOPIC", "TYPE", "BYTES")
	for _, r := range c.Outbox {
		row(t, since(c.Meta.Created, r.At), fmt.Sprint(r.Seq), r.Topic, r.TypeURL, fmt.Sprint(len(r.Value)))
	}
	p.flush(t)
	return p.err
}

// summary is the container in one line.
func summary(c *lifecycle.Container) string {
	execs := count(len(c.Execs), "exec", "execs")
	return fmt.Sprintf("init %s, %s (%d live), %d deleted, %s open", word(c.Init.State), execs, c.Live(), c.DeletedExecs,
		count(len(c.Open), "intent", "intents"))
}

func since(start, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%+.6fs", at.Sub(start).Seconds())
}

func process(exec string) string {
	if exec == "" {
		return "init"
	}
	return "exec " + exec
}

// phase names the intent of a mark or an outcome.
func phase(r lifecycle.Record) string {
	if r.Intent == 0 {
		return string(r.Phase)
	}
	return fmt.Sprintf("%s (%d)", r.Phase, r.Intent)
}

func states(r lifecycle.Record) string {
	if r.From == r.To {
		return word(r.To)
	}
	return word(r.From) + " -> " + word(r.To)
}

func word(s lifecycle.State) string {
	if s == lifecycle.None {
		return "none"
	}
	return string(s)
}

func pid(p *lifecycle.Process) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprint(p.Pid)
}

func result(r lifecycle.Record) string {
	switch {
	case r.Error != nil:
		return r.Error.Error()
	case r.Exit != nil:
		return fmt.Sprintf("status %d (%s)", r.Exit.Status, r.Exit.Source)
	}
	return "-"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// row writes one line. Ids, topics and messages come from clients and runtimes: control characters in them
// must not reach a terminal, or break the table.
func row(t *tabwriter.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Map(printable, c)
	}
	_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")) // the printer below keeps the error
}

func printable(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return ' '
	}
	return r
}

// printer keeps the first error of a writer.
type printer struct {
	io.Writer
	err error
}

func (p *printer) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	var n int
	n, p.err = p.Writer.Write(b)
	return n, p.err
}

func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func (p *printer) flush(t *tabwriter.Writer) {
	if err := t.Flush(); err != nil && p.err == nil {
		p.err = err
	}
}
