// Package initramfs makes the file system that a virtual machine starts from:
// a cpio archive in the "newc" form, as the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst describes it.
package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Types of a file in its mode: see inode(7).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

// Archive is a file system being written. Directories are made when something
// is put into them. The first error is kept for Close.
type Archive struct {
	out   *bufio.Writer
	size  int64
	inode int
	known map[string]bool // paths written, so that nothing is written twice
	err   error
}

// New starts an archive on w.
func New(w io.Writer) *Archive {
	return &Archive{out: bufio.NewWriterSize(w, 1<<20), known: map[string]bool{".": true, "/": true}}
}

// Add puts a file of this machine, followed if it is a link, at path.
func (a *Archive) Add(at, from string) {
	f, err := os.Open(from)
	if err != nil {
		a.Fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.Fail(err)
		return
	}
	a.entry(at, typeFile|uint32(info.Mode().Perm()), info.Size(), f, 0, 0)
}

// Write puts a file with the given contents at path.
func (a *Archive) Write(at string, perm uint32, data string) {
	a.entry(at, typeFile|perm, int64(len(data)), strings.NewReader(data), 0, 0)
}

// Link puts a symbolic link at path.
func (a *Archive) Link(at, target string) {
	a.entry(at, typeLink|0o777, int64(len(target)), strings.NewReader(target), 0, 0)
}

// Device puts a character device at path: the kernel opens /dev/console before
// anything can be mounted.
func (a *Archive) Device(at string, major, minor int) {
	a.entry(at, typeChar|0o600, 0, nil, major, minor)
}

// Tree puts a directory of this machine with all that is in it at path.
func (a *Archive) Tree(at, from string) {
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(from, name)
		a.Add(path.Join(at, below), name)
		return err
	})
	a.Fail(err)
}

// Dir makes a directory.
func (a *Archive) Dir(at string) { a.entry(at, typeDir|0o755, 0, nil, 0, 0) }

func (a *Archive) entry(at string, mode uint32, size int64, data io.Reader, major, minor int) {
	at = path.Clean(at)
	if a.known[at] || a.err != nil {
		return
	}
	a.known[at] = true
	if dir := path.Dir(at); !a.known[dir] {
		a.Dir(dir)
	}
	a.inode++
	a.header(strings.TrimPrefix(at, "/"), a.inode, mode, size, major, minor)
	if data != nil {
		n, err := io.Copy(a.out, io.LimitReader(data, size))
		a.Fail(err)
		if n != size {
			a.Fail(fmt.Errorf("%s: %d of %d bytes: it changed while it was read", at, n, size))
		}
	}
	a.size += size
	a.pad()
}

// header writes 6 + 13*8 characters, the name, and zeroes up to a multiple of 4.
func (a *Archive) header(name string, inode int, mode uint32, size int64, major, minor int) {
	// Inode, mode, uid, gid, links, time, size, device (2), special device (2), length of the name, checksum.
	n, err := fmt.Fprintf(a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	a.size += int64(n)
	a.Fail(err)
	a.pad()
}

func (a *Archive) pad() {
	for ; a.size%4 != 0; a.size++ {
		a.Fail(a.out.WriteByte(0))
	}
}

// Fail notes an error for Close, unless there was one before.
func (a *Archive) Fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// Close ends the archive and returns the first error of all.
func (a *Archive) Close() error {
	a.header("TRAILER!!!", 0, 0, 0, 0, 0)
	a.Fail(a.out.Flush())
	return a.err
}
