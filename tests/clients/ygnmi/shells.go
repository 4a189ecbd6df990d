package main

import (
	"maps"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/openconfig/ygot/ygot"

	"holdfast/tests/clients/ygnmi/oc"
)

// removeShells removes list entries of which a configuration has nothing but the keys. They stand for what exists in state alone,
// such as the loopback link and the link-local addresses of the kernel.
func removeShells(root *oc.Root) {
	for _, it := range root.Interface {
		for index, sub := range it.Subinterface {
			maps.DeleteFunc(ipv4Of(sub), func(ip string, address *oc.Interface_Subinterface_Ipv4_Address) bool {
				return isShell(address, &oc.Interface_Subinterface_Ipv4_Address{Ip: &ip})
			})
			maps.DeleteFunc(ipv6Of(sub), func(ip string, address *oc.Interface_Subinterface_Ipv6_Address) bool {
				return isShell(address, &oc.Interface_Subinterface_Ipv6_Address{Ip: &ip})
			})
			if sub.GetIpv4() != nil {
				maps.DeleteFunc(sub.Ipv4.Neighbor, func(ip string, it *oc.Interface_Subinterface_Ipv4_Neighbor) bool {
					return isShell(it, &oc.Interface_Subinterface_Ipv4_Neighbor{Ip: &ip})
				})
			}
			if sub.GetIpv6() != nil {
				maps.DeleteFunc(sub.Ipv6.Neighbor, func(ip string, it *oc.Interface_Subinterface_Ipv6_Neighbor) bool {
					return isShell(it, &oc.Interface_Subinterface_Ipv6_Neighbor{Ip: &ip})
				})
			}
			if isShell(sub, &oc.Interface_Subinterface{Index: &index}) {
				delete(it.Subinterface, index)
			}
		}
	}
	maps.DeleteFunc(root.Interface, func(name string, it *oc.Interface) bool {
		return isShell(it, &oc.Interface{Name: &name})
	})
	for _, it := range lacpOf(root) {
		it.Member = nil
	}
	ygot.PruneEmptyBranches(root)
}

func isShell[T ygot.GoStruct](entry, shell T) bool {
	ygot.PruneEmptyBranches(entry)
	return cmp.Equal(entry, shell, cmpopts.EquateEmpty())
}
