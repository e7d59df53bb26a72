//go:build !unix

package mqttflood

func lowerPriority() {}
