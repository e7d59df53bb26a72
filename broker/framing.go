package broker

// framer finds the boundaries of MQTT packets in a stream of bytes.
type framer struct {
	max uint64 // size in bytes of the largest packet allowed, its header included

	header int    // bytes of the current packet's header seen so far; 0 before the first
	length uint64 // remaining length decoded so far
	body   uint64 // bytes of the current packet's body still to come
	lost   bool   // a malformed length was seen: the reader behind will fail on it
}

// scan advances over p. It returns how many bytes of p precede the header of the first
// packet that is too large (a header that spans calls has its earlier bytes delivered),
// how many packets began in p, and whether all were small enough.
func (f *framer) scan(p []byte) (good, begun int, ok bool) {
	for i := 0; i < len(p) && !f.lost; {
		if f.body > 0 {
			step := min(f.body, uint64(len(p)-i))
			f.body -= step
			i += int(step)
			good = i
			continue
		}
		if f.header == 0 {
			begun++
			f.header, f.length = 1, 0
			i++
			continue
		}
		b := p[i]
		i++
		f.length |= uint64(b&0x7f) << (7 * (f.header - 1))
		f.header++
		if b&0x80 != 0 {
			f.lost = f.header > 4
			continue
		}
		if f.length+uint64(f.header) > f.max {
			return good, begun, false
		}
		f.body, f.header = f.length, 0
		good = i
	}
	return len(p), begun, true
}
