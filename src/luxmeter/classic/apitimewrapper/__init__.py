"""apitimewrapper's front door, the torch side: a line for each call, on the screen and in performance.log.

from luxmeter.classic.apitimewrapper import start_hook_torch_net, print
start_hook_torch_net(hook_inside=False)
"""

from luxmeter.classic.apitimewrapper.analysis import end_analysis, start_analysis
from luxmeter.classic.apitimewrapper.my_print import print
from luxmeter.classic.apitimewrapper.torch_wrap.hook_net import start_hook_torch_net, stop_hook_torch_net

__all__ = ["end_analysis", "print", "start_analysis", "start_hook_torch_net", "stop_hook_torch_net"]
