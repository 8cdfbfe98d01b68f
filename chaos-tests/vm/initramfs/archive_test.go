package initramfs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchive lets cpio read what is written.
func TestArchive(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox, which has cpio")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, []byte("12345"), 0o750); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	a := New(&b)
	a.Write("/etc/deep/text", 0o644, "text\n")
	a.Write("/etc/deep/text", 0o644, "written twice\n")
	a.Add("/bin/program", source)
	a.Link("/bin/link", "program")
	a.Tree("/tree", dir)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(busybox, "cpio", "-i")
	cmd.Dir, cmd.Stdin = out, &b
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, said)
	}
	for name, want := range map[string]string{
		"etc/deep/text": "text\n", "bin/program": "12345", "bin/link": "12345", "tree/source": "12345",
	} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "bin/program")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the program: %v, %v", info, err)
	}
}

// TestMissingLibrary: a machine in which a program could not run is not built.
func TestMissingLibrary(t *testing.T) {
	if _, err := find("libmissing.so.9", []string{"/nowhere"}); err == nil || !strings.Contains(err.Error(), "libmissing.so.9") {
		t.Errorf("%v", err)
	}
	a := New(&bytes.Buffer{})
	a.Add("/x", "/nowhere/x")
	if err := a.Close(); err == nil {
		t.Error("a file that is missing is no error")
	}
}
