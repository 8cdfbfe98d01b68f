package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
)

// The layout of bbolt's file, format version 2, as far as a reader has to follow it. Numbers have the byte
// order of the machine. bbolt itself checks only the two meta pages and trusts everything behind them: a
// page number or an offset that is wrong makes it panic, loop or read outside its mapping.
//
//	page    id u64, flags u16, count u16, overflow u32, elements
//	meta    magic u32, version u32, page size u32, flags u32, root bucket, freelist u64, pages u64, txid u64, fnv64a u64
//	bucket  root page u64 (0: one page inline behind it), sequence u64
//	branch  count x {pos u32, key size u32, page u64}; pos counts from the element
//	leaf    count x {flags u32, pos u32, key size u32, value size u32}; flags 1: the value is a bucket
//	free    count x page u64; a count of 65535 is a u64 before the first
const (
	pageHeader  = 16
	elementSize = 16
	metaSize    = 64
	bucketSize  = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	minPageSize, maxPageSize = 1 << 10, 1 << 24
	noFreelist               = ^uint64(0)
)

var order = binary.NativeEndian

// verify reads every page bbolt can reach in a file and returns ErrDamaged unless it can be trusted with
// them. Afterwards bbolt's own code does not panic on the file as long as nobody else writes to it.
func verify(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", ErrDamaged)
	}
	v := verifier{file: f, size: uint64(info.Size()), seen: map[uint64]bool{0: true, 1: true}}
	if err := v.meta(); err != nil {
		return err
	}
	if err := v.freelist(); err != nil {
		return err
	}
	return v.bucket(v.root, nil)
}

type verifier struct {
	file           *os.File
	size, pageSize uint64
	root, free     uint64
	txid           uint64
	pages          uint64 // bbolt's high-water mark
	seen           map[uint64]bool
}

func (v *verifier) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// meta chooses the meta page as bbolt does: the newer of those with a right checksum.
func (v *verifier) meta() error {
	if v.size == 0 {
		return v.damaged("the file is empty")
	}
	first, err := v.metaAt(0)
	if err != nil {
		return err
	}
	second := false
	for at := max(v.pageSize, minPageSize); at <= maxPageSize; at <<= 1 {
		if second, err = v.metaAt(at); err != nil {
			return err
		}
		if first || second {
			break // of a file whose first page is lost, the page size has to be found
		}
	}
	switch {
	case !first && !second:
		return v.damaged("no meta page is valid")
	case v.pages > v.size/v.pageSize:
		return v.damaged("the file is cut short: %d of %d pages", v.size/v.pageSize, v.pages)
	case v.free == noFreelist:
		return ErrForeign // we always write one; bbolt would look for it where we cannot catch its panics
	}
	return nil
}

// metaAt reads the meta page at an offset, if there is one. One that bbolt would believe, and that cannot be
// true, is an error.
func (v *verifier) metaAt(at uint64) (bool, error) {
	buf := make([]byte, pageHeader+metaSize)
	if _, err := v.file.ReadAt(buf, int64(at)); err != nil {
		return false, nil // too short; what is there decides
	}
	m := buf[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8])
	if order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion || order.Uint64(m[metaSize-8:]) != sum.Sum64() {
		return false, nil
	}
	size := uint64(order.Uint32(m[8:]))
	if size < minPageSize || size > maxPageSize || size&(size-1) != 0 || at != 0 && at != size || v.pageSize != 0 && v.pageSize != size {
		return false, v.damaged("a meta page at %d says that pages have %d bytes", at, size)
	}
	v.pageSize = size
	if txid := order.Uint64(m[48:]); v.pages == 0 || txid > v.txid {
		v.txid = txid
		v.root, v.free, v.pages = order.Uint64(m[16:]), order.Uint64(m[32:]), order.Uint64(m[40:])
	}
	return true, nil
}

// page reads a page with its overflow and marks it as used.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id >= v.pages {
		return nil, v.damaged("page %d is outside the file", id)
	}
	head := make([]byte, pageHeader)
	if _, err := v.file.ReadAt(head, int64(id*v.pageSize)); err != nil {
		return nil, err
	}
	n := uint64(order.Uint32(head[12:])) + 1
	if order.Uint64(head) != id || n > v.pages-id {
		return nil, v.damaged("page %d says it is page %d with %d pages", id, order.Uint64(head), n)
	}
	for i := id; i < id+n; i++ {
		if v.seen[i] {
			return nil, v.damaged("page %d is used twice", i)
		}
		v.seen[i] = true
	}
	buf := make([]byte, n*v.pageSize)
	_, err := v.file.ReadAt(buf, int64(id*v.pageSize))
	return buf, err
}

// freelist reads the free list; a page on it must not be reachable from anywhere.
func (v *verifier) freelist() error {
	p, err := v.page(v.free)
	if err != nil {
		return err
	}
	if order.Uint16(p[8:]) != freelistPage {
		return v.damaged("page %d is not a free list", v.free)
	}
	ids := p[pageHeader:]
	n := uint64(order.Uint16(p[10:]))
	if n == 0xFFFF {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return v.damaged("the free list is longer than its page")
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id >= v.pages || v.seen[id] {
			return v.damaged("the free list names page %d", id)
		}
		v.seen[id] = true
	}
	return nil
}

// bucket walks a bucket from its root page, or through the page inline in its value.
func (v *verifier) bucket(root uint64, inline []byte) error {
	if root != 0 {
		return v.tree(root, nil, nil)
	}
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != leafPage {
		return v.damaged("an inline bucket has no leaf")
	}
	return v.leaf(inline, nil, nil)
}

// tree walks a page whose keys have to be at least low and below high.
func (v *verifier) tree(id uint64, low, high []byte) error {
	p, err := v.page(id)
	if err != nil {
		return err
	}
	switch order.Uint16(p[8:]) {
	case branchPage:
		return v.branch(p, low, high)
	case leafPage:
		return v.leaf(p, low, high)
	}
	return v.damaged("page %d is of unknown type %#x", id, order.Uint16(p[8:]))
}

func (v *verifier) branch(p, low, high []byte) error {
	n := uint64(order.Uint16(p[10:]))
	if n == 0 {
		return v.damaged("a branch has no elements")
	}
	keys := make([][]byte, n+1)
	keys[n] = high
	children := make([]uint64, n)
	for i := range n {
		e, at, err := v.element(p, i, n)
		if err != nil {
			return err
		}
		if keys[i], err = v.slice(p, at+uint64(order.Uint32(e)), uint64(order.Uint32(e[4:]))); err != nil {
			return err
		}
		children[i] = order.Uint64(e[8:])
	}
	if err := v.ascending(keys[:n], low, high); err != nil {
		return err
	}
	for i, child := range children {
		if err := v.tree(child, keys[i], keys[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) leaf(p, low, high []byte) error {
	n := uint64(order.Uint16(p[10:]))
	keys := make([][]byte, n)
	for i := range n {
		e, at, err := v.element(p, i, n)
		if err != nil {
			return err
		}
		flags, pos := order.Uint32(e), at+uint64(order.Uint32(e[4:]))
		ksize, vsize := uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
		if keys[i], err = v.slice(p, pos, ksize); err != nil {
			return err
		}
		value, err := v.slice(p, pos+ksize, vsize)
		if err != nil {
			return err
		}
		if err := v.value(flags, value); err != nil {
			return err
		}
	}
	return v.ascending(keys, low, high)
}

// value descends into a bucket.
func (v *verifier) value(flags uint32, value []byte) error {
	switch {
	case flags == 0:
		return nil
	case flags == 1 && len(value) >= bucketSize:
		return v.bucket(order.Uint64(value), value[bucketSize:])
	}
	return v.damaged("a leaf element has flags %#x", flags)
}

// element returns an element of a page and its offset.
func (v *verifier) element(p []byte, i, n uint64) ([]byte, uint64, error) {
	if pageHeader+n*elementSize > uint64(len(p)) {
		return nil, 0, v.damaged("a page of %d bytes has %d elements", len(p), n)
	}
	at := pageHeader + i*elementSize
	return p[at : at+elementSize], at, nil
}

func (v *verifier) slice(p []byte, at, size uint64) ([]byte, error) {
	if at+size > uint64(len(p)) {
		return nil, v.damaged("an element is outside its page")
	}
	return p[at : at+size], nil
}

func (v *verifier) ascending(keys [][]byte, low, high []byte) error {
	for i, k := range keys {
		if len(k) == 0 || i > 0 && bytes.Compare(keys[i-1], k) >= 0 || bytes.Compare(k, low) < 0 ||
			high != nil && bytes.Compare(k, high) >= 0 {
			return v.damaged("keys are out of order")
		}
	}
	return nil
}
