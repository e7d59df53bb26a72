//go:build !unix

package mqttflood

func lowerPriority() error { return nil }
