// Package mosquitto has the configuration and the access rules of Eclipse Mosquitto 2 for Workwire: users copy
// mosquitto.conf and acl, and test/kit/mosquittokit runs them.
package mosquitto

import _ "embed" // the configuration files

var (
	// Conf is the configuration.
	//go:embed mosquitto.conf
	Conf string
	// ACL has the access rules.
	//go:embed acl
	ACL string
)
