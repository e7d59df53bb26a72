package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"slices"
)

// Layout of a bbolt file: pages of equal size, the first two of which are metas. Numbers have the
// byte order of the machine.
const (
	pageHeader  = 16 // id, flags, count, number of further pages
	elementSize = 16
	metaSum     = 56 // offset of the checksum in a meta
	magic       = 0xED0CDAED

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01 // of an element of a leaf

	noFreelist = ^uint64(0)
)

var order = binary.NativeEndian

// openChecked opens and locks the file and checks all of it; it is for [bbolt.Options].OpenFile.
// bbolt must not open a damaged file: it reads pages in goroutines of its own, where a panic ends
// the process. bbolt locks the file again, which does nothing.
func (c *Config) openChecked(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	if err := lock(file, c.LockTimeout); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := guard(func() error { return c.checkFile(file) }); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (c *Config) checkFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err // bbolt writes the first pages of a new file
	}
	data, unmap, err := mapped(file, int(info.Size()))
	if err != nil {
		return err
	}
	defer unmap()
	return c.check(data)
}

// check returns an error unless data is a whole bbolt file: every page that its tree reaches is in
// the file, of the right type and reached once, all keys are in order, no page of the tree is free,
// and the values of Config.Buckets have their checksums.
func (c *Config) check(data []byte) error {
	m, err := newestMeta(data, c.SetAside)
	if err != nil {
		return err
	}
	k := &checker{config: c, data: data, pageSize: m.pageSize, pages: m.pages, seen: make([]bool, min(m.pages, uint64(len(data))/m.pageSize))}
	if err := k.bucket(m.root, nil); err != nil {
		return err
	}
	if k.marked && k.badValue != nil {
		return k.badValue
	}
	if m.freelist == noFreelist {
		return nil
	}
	return k.freelist(m.freelist)
}

// meta is what the meta page of a transaction says.
type meta struct {
	pageSize, root, freelist, pages, transaction uint64
}

// newestMeta returns the meta of the last transaction. bbolt falls back to the one before it if the
// last one is damaged; strict does not allow that, because the last changes would be missing.
func newestMeta(data []byte, strict bool) (newest meta, err error) {
	first, firstOK := readMeta(data, 0)
	if !firstOK {
		first.pageSize = uint64(os.Getpagesize())
	}
	second, secondOK := readMeta(data, first.pageSize)
	switch {
	case !firstOK && !secondOK:
		return meta{}, errors.New("it has no valid meta page")
	case strict && firstOK != secondOK:
		return meta{}, errors.New("one of its meta pages is damaged")
	case !firstOK || secondOK && second.transaction > first.transaction:
		return second, nil
	}
	return first, nil
}

func readMeta(data []byte, offset uint64) (meta, bool) {
	if uint64(len(data)) < offset+pageHeader+metaSum+8 {
		return meta{}, false
	}
	content := data[offset+pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(content[:metaSum])
	m := meta{
		pageSize: uint64(order.Uint32(content[8:])), root: order.Uint64(content[16:]), freelist: order.Uint64(content[32:]),
		pages: order.Uint64(content[40:]), transaction: order.Uint64(content[48:]),
	}
	return m, order.Uint32(content) == magic && sum.Sum64() == order.Uint64(content[metaSum:]) && m.pageSize >= 512
}

// checker walks the tree of a file.
type checker struct {
	config          *Config
	data            []byte
	pageSize, pages uint64
	seen            []bool // by page

	marked   bool  // the file has checksums
	badValue error // of the first value whose checksum is wrong
}

// page returns the content of a page with its further pages, and the type and number of its
// elements.
func (k *checker) page(id uint64) (content []byte, flags uint16, count int, err error) {
	end := id + 1
	if id >= 2 && id < uint64(len(k.seen)) {
		header := k.data[id*k.pageSize:]
		if order.Uint64(header) == id {
			flags, count, end = order.Uint16(header[8:]), int(order.Uint16(header[10:])), end+uint64(order.Uint32(header[12:]))
			content = header
		}
	}
	if content == nil || end > uint64(len(k.seen)) {
		return nil, 0, 0, fmt.Errorf("page %d is not in the file", id)
	}
	for i := id; i < end; i++ {
		if k.seen[i] {
			return nil, 0, 0, fmt.Errorf("page %d is used twice", i)
		}
		k.seen[i] = true
	}
	return content[:(end-id)*k.pageSize], flags, count, nil
}

// bucket checks the tree of a bucket. path holds the names of the bucket and those around it.
func (k *checker) bucket(root uint64, path []string) error {
	return (&keyOrder{}).walk(k, root, path)
}

// keyOrder checks that the keys of a bucket ascend.
type keyOrder struct {
	last, floor []byte // the key before, and the key of the branch that leads here
}

func (o *keyOrder) leafKey(key []byte) bool {
	ok := bytes.Compare(key, o.floor) >= 0 && (o.last == nil || bytes.Compare(key, o.last) > 0)
	o.last = key
	return ok
}

func (o *keyOrder) walk(k *checker, id uint64, path []string) error {
	content, flags, count, err := k.page(id)
	if err != nil {
		return err
	}
	switch flags {
	case leafPage:
		return o.leaf(k, content, count, path)
	case branchPage:
		end := pageHeader + count*elementSize // of the data so far
		for i := range count {
			element := content[pageHeader+i*elementSize:]
			pos, size := int(order.Uint32(element)), int(order.Uint32(element[4:]))
			if pageHeader+i*elementSize+pos != end {
				return fmt.Errorf("page %d has a gap", id)
			}
			end += size
			o.floor = element[pos:][:size]
			if o.last != nil && bytes.Compare(o.floor, o.last) <= 0 {
				return fmt.Errorf("the keys of page %d are not in order", id)
			}
			if err := o.walk(k, order.Uint64(element[8:]), path); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("page %d is of type %#x, want a branch or a leaf", id, flags)
}

// leaf checks the elements of a leaf page or of a bucket that is stored in its parent's page.
func (o *keyOrder) leaf(k *checker, content []byte, count int, path []string) error {
	end := pageHeader + count*elementSize // of the data so far
	for i := range count {
		element := content[pageHeader+i*elementSize:]
		flags, pos := order.Uint32(element), int(order.Uint32(element[4:]))
		keySize, valueSize := int(order.Uint32(element[8:])), int(order.Uint32(element[12:]))
		if pageHeader+i*elementSize+pos != end {
			return errors.New("a page has a gap")
		}
		end += keySize + valueSize
		key, value := element[pos:][:keySize], element[pos+keySize:][:valueSize]
		if !o.leafKey(key) {
			return errors.New("the keys of a page are not in order")
		}
		if flags&bucketFlag == 0 {
			k.value(path, string(key), value)
			continue
		}
		below := append(slices.Clone(path), string(key))
		if root := order.Uint64(value); root != 0 {
			if err := k.bucket(root, below); err != nil {
				return err
			}
			continue
		}
		inline := slices.Clone(value[pageHeader:]) // aligned by nobody
		if flags := order.Uint16(inline[8:]); flags != leafPage {
			return fmt.Errorf("bucket %q is of type %#x", below, flags)
		}
		if err := (&keyOrder{}).leaf(k, inline, int(order.Uint16(inline[10:])), below); err != nil {
			return err
		}
	}
	return nil
}

// value checks the checksum of a value.
func (k *checker) value(path []string, key string, value []byte) {
	switch {
	case len(path) != 1:
	case path[0] == string(k.config.Meta):
		k.marked = k.marked || key == checksumKey
	case k.badValue == nil && slices.Contains(k.config.Buckets, Bucket(path[0])):
		if _, ok := withoutChecksum(key, value); !ok {
			k.badValue = fmt.Errorf("a value in bucket %s has a wrong checksum", path[0])
		}
	}
}

// freelist checks that no page of the tree is free.
func (k *checker) freelist(id uint64) error {
	content, flags, count, err := k.page(id)
	if err != nil || flags != freelistPage {
		return errors.Join(err, fmt.Errorf("page %d of type %#x is not the list of free pages", id, flags))
	}
	ids := content[pageHeader:]
	if count == 0xFFFF { // does not fit into the header
		count, ids = int(order.Uint64(ids)), ids[8:]
	}
	for i := range count {
		free := order.Uint64(ids[8*i:])
		if free < 2 || free >= k.pages || free < uint64(len(k.seen)) && k.seen[free] {
			return fmt.Errorf("page %d is free and in use", free)
		}
	}
	return nil
}

// checksumKey marks in Config.Meta a file whose values end with a checksum. Files of earlier
// versions have none.
const checksumKey = "checksum"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of a value, which covers its key.
func checksum(key string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)
}

func withChecksum(key string, value []byte) []byte {
	return binary.BigEndian.AppendUint32(slices.Clip(value), checksum(key, value))
}

// withoutChecksum returns the value and whether its checksum is right.
func withoutChecksum(key string, value []byte) ([]byte, bool) {
	n := len(value) - 4
	if n < 0 {
		return nil, false
	}
	return value[:n:n], binary.BigEndian.Uint32(value[n:]) == checksum(key, value[:n])
}
