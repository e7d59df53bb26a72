// Package packet decodes the MQTT 5 packets that clients send, and encodes those that the broker
// sends. Decoding checks everything that MQTT 5 demands of a single packet: lengths, reserved bits,
// UTF-8, and which properties may be present, how often, and with which values. It allocates memory
// in proportion to the bytes that have arrived.
//
//	header, ok, err := packet.ParseHeader(data)
//	publish, err := packet.DecodePublish(header.Flags(), data[header.Size:header.Size+header.Length])
//	out = packet.AppendPublish(out, toClient, time.Now().Unix())
package packet
