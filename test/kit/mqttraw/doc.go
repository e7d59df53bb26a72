// Package mqttraw builds MQTT 5 packets from their bytes and parses what a broker sends, strictly.
// It shares no code with the codecs of brokers and clients, so that a test of the broker does not
// inherit their faults, and it can build packets that MQTT forbids.
//
//	c := mqttraw.Dial(t, addr)
//	c.Send(mqttraw.Connect{ClientID: "a", User: "hub1", Password: "secret"}.Bytes())
//	connack := c.Expect(mqttraw.CONNACK)
//	c.Send([]byte{0x82, 6, 0, 0, 0, 0, 1, 0x24})
//	c.ExpectDisconnect(0x82)
package mqttraw
