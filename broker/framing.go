package broker

// framer finds the boundaries of MQTT packets in a stream of bytes.
type framer struct {
	max uint64 // maximum packet size in bytes, including the header

	header    int    // bytes of the current packet's header read so far; 0 before the first
	length    uint64 // remaining length decoded so far
	body      uint64 // bytes of the current packet's body not read yet
	malformed bool   // a malformed length was read: mochi-mqtt rejects the stream
}

// scan advances over p. It returns the number of bytes of p before the header of the first packet
// that is too large, the number of packets that begin in p, and whether all packets are small
// enough. Earlier bytes of a header that spans calls are not held back.
func (f *framer) scan(p []byte) (good, begun int, ok bool) {
	for i := 0; i < len(p) && !f.malformed; {
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
			f.malformed = f.header > 4
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
