package runtime

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// readAll reads a fifo to its end; the reader is there when readAll returns.
func readAll(t *testing.T, path string) <-chan string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	must(t, err)
	result := make(chan string, 1)
	go func() {
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			t.Error(err)
		}
		result <- string(text)
	}()
	return result
}

func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s in vain: %s", patience, what)
		panic("unreachable")
	}
}

func deadline() time.Time { return time.Now().Add(patience) }

// screen reads a fifo as a person would, up to a text.
type screen struct {
	t    *testing.T
	f    *os.File
	text string
}

func openScreen(t *testing.T, path string) *screen {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { closeAll(f) })
	return &screen{t: t, f: f}
}

func (s *screen) expect(text string) {
	s.t.Helper()
	must(s.t, s.f.SetReadDeadline(deadline()))
	buffer := make([]byte, 4096)
	for !strings.Contains(s.text, text) {
		n, err := s.f.Read(buffer)
		if err != nil {
			s.t.Fatalf("waiting for %q after %q: %v", text, s.text, err)
		}
		s.text += string(buffer[:n])
	}
	_, s.text, _ = strings.Cut(s.text, text)
}

func (s *store) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[name] != nil
}

func (s *store) awaitEmpty(t *testing.T) {
	t.Helper()
	await(t, "the keeper holds nothing", func() bool { return len(s.names()) == 0 })
}

func (s *store) awaitGone(t *testing.T, name string) {
	t.Helper()
	await(t, name+" is let go", func() bool { return !s.has(name) })
}
